"""The words for a workspace's state, and what is kept of the setup that a workspace reports about itself."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from codehub.domain.model import Blocked, DesiredState, ErrorReason, Operation, Phase, Progress, Workspace
from codehub.domain.setup import (
    SetupState,
    SetupStep,
    StepState,
    expected_ports,
    parse_setup,
    setup_column,
    setup_sentence,
)
from codehub.domain.wording import Summary, disk_warning, error_text, fixing_command, progress_text, summarize
from testing.codehub.workspaces import NOW, WORKSPACE_ID, workspace

ASLEEP = replace(workspace(desired=DesiredState.STANDBY), phase=Phase.STANDBY, last_access_at=NOW)


@pytest.mark.parametrize(
    ("row", "label", "text"),
    [
        (ASLEEP, "Asleep", ""),
        (replace(ASLEEP, phase=Phase.ARCHIVED, desired_state=DesiredState.ARCHIVED), "Archived", ""),
        (replace(ASLEEP, phase=Phase.RUNNING, desired_state=DesiredState.RUNNING), "Running", ""),
        (replace(ASLEEP, last_access_at=None), "Not started", ""),
        (replace(ASLEEP, desired_state=DesiredState.RUNNING), "Waiting", "about to start"),
        (replace(ASLEEP, phase=Phase.RUNNING), "Stopping", "about to stop"),
        (replace(ASLEEP, phase=Phase.ERROR, error_reason=ErrorReason.TIMEOUT), "Error", "It took too long"),
        (replace(ASLEEP, desired_state=DesiredState.DELETED), "Deleting", "its files are archived first"),
        (replace(ASLEEP, deleted_at=NOW, operation=Operation.DELETING), "Deleted", ""),
        (replace(ASLEEP, operation=Operation.ARCHIVING), "Archiving", "reading its files"),
        (
            replace(ASLEEP, operation=Operation.ARCHIVING, progress=Progress("verify", 1, 2)),
            "Archiving",
            "verifying what was written, 50 %",
        ),
        (
            replace(
                ASLEEP,
                operation=Operation.ARCHIVING,
                progress=Progress("verify", 1, 2),
                blocked=Blocked(ErrorReason.OUT_OF_SPACE, "the disk is full", NOW),
            ),
            "Archiving",
            "the disk is full",
        ),
        (
            replace(
                ASLEEP,
                operation=Operation.ARCHIVING,
                op_started_at=NOW,
                cancel_op_started_at=NOW,
                blocked=Blocked(ErrorReason.OUT_OF_SPACE, "the disk is full", NOW),
            ),
            "Archiving",
            "being cancelled",
        ),
        (
            replace(
                ASLEEP,
                desired_state=DesiredState.RUNNING,
                blocked=Blocked(ErrorReason.UNREACHABLE, "Docker does not answer", NOW),
            ),
            "Waiting",
            "Docker does not answer",
        ),
    ],
)
def test_a_state_in_words(row: Workspace, label: str, text: str) -> None:
    found = summarize(row)
    assert found.label == label
    assert found.text.startswith(text)
    assert bool(found.text) is bool(text)


@pytest.mark.parametrize(
    ("progress", "text"),
    [
        (Progress("archive"), ""),
        (Progress("archive", 0, 100), "0 %, 0 bytes of 100 bytes"),
        (Progress("archive", 150, 100), "100 %, 150 bytes of 100 bytes"),
        (Progress("archive", 5, 0), "5 bytes"),
        (Progress("start", 4, 3, "steps"), "step 3 of 3"),
        (Progress("start", 0, None, "steps"), ""),
        (Progress("start", 0, 2, "steps"), "step 1 of 2"),
        (Progress("install code-server: code-server"), "installing code-server"),
        (Progress("install code-server"), "installing code-server"),
    ],
)
def test_progress_is_never_more_than_everything(progress: Progress, text: str) -> None:
    assert progress_text(progress) == text


def test_the_remedy_is_one_that_this_user_can_apply() -> None:
    lost = replace(ASLEEP, phase=Phase.ERROR, error_reason=ErrorReason.DATA_LOST)
    assert fixing_command(lost, is_admin=True) == f"codehub admin recover {WORKSPACE_ID}"
    assert fixing_command(lost, is_admin=False) is None
    failed = replace(lost, error_reason=ErrorReason.TIMEOUT, name="my app")
    assert fixing_command(failed, is_admin=False) == "codehub ws start 'my app'"
    for is_admin in (True, False):
        assert error_text(ErrorReason.TIMEOUT, is_admin=is_admin) == error_text(ErrorReason.TIMEOUT, is_admin=False)
    assert error_text(None, is_admin=False)[0]
    assert summarize(replace(failed, error_reason=None)) == Summary("Error", error_text(None, is_admin=False)[0])


def test_a_warning_comes_before_the_disk_is_over() -> None:
    assert disk_warning(50, 100) == ""
    assert disk_warning(None, 100) == disk_warning(99, None) == ""
    assert "almost all" in disk_warning(95, 100)
    assert "more than" in disk_warning(101, 100)


# What a workspace reports.


def step(**changes: Any) -> dict[str, Any]:
    return {"id": "clone", "title": "Clone", "state": "running", **changes}


def test_a_report_is_bounded_in_every_direction() -> None:
    """Code inside the workspace writes it, and it is stored in the row and shown on the card."""
    long = "x" * 5000
    flood = {
        "steps": [step(id=long, title=long, kind=long, message=long, notes=[long] * 500, progress={"step": long})]
        * 999,
        "ports": list(range(1, 1000)),
        "ignored": [[long, long]] * 999,
        "error": long,
        "folder": long,
        "home": long,
    }
    state = parse_setup(flood)
    assert (len(state.steps), len(state.ports), len(state.ignored)) == (200, 50, 50)
    first = state.steps[0]
    assert (len(first.id), len(first.title), len(first.kind), len(first.doing)) == (100, 200, 20, 100)
    assert (len(first.message), len(first.notes), len(first.notes[0])) == (1000, 50, 1000)
    assert len(state.error) == len(state.folder) == len(state.home) == 1000
    assert parse_setup(setup_column(state)) == state


@pytest.mark.parametrize(
    ("value", "percent"),
    [
        (0, 0),
        (40, 40),
        (40.9, 40),
        (101, 100),
        (-3, 0),
        (1e14, 100),
        (1e15, None),
        (True, None),
        ("40", None),
        (None, None),
    ],
)
def test_a_percentage_is_from_0_to_100_or_unknown(value: object, percent: int | None) -> None:
    assert parse_setup({"steps": [step(progress={"percent": value})]}).steps[0].percent == percent


def test_malformed_parts_are_omitted_and_the_rest_is_kept() -> None:
    state = parse_setup(
        {
            "steps": [3, step(state="exploded", exit_code="1", started_at=True), step(once=False, exit_code=1.0)],
            "ports": [0, 1, 65_535, 65_536, True, "80"],
            "ignored": [["a", "b"], ["a"], "ab", ["a", 3], ["a", "b", "c"]],
            "running": "yes",
            "error": "a\x1b[31mb\nc",
        }
    )
    assert [(one.state, one.once, one.exit_code, one.started_at) for one in state.steps] == [
        (StepState.PENDING, True, None, None),
        (StepState.RUNNING, False, 1, None),
    ]
    assert state.ports == (1, 65_535)
    assert state.ignored == (("a", "b"), ("a", ""))
    assert state.running is False
    assert state.error == "a[31mb\nc", "no escape sequence reaches a terminal"
    assert parse_setup([]) == parse_setup(None) == SetupState()
    assert parse_setup({"running": True}).running
    assert parse_setup({"steps": [step(progress=[1])]}).steps[0].percent is None


def test_the_card_says_the_first_thing_that_matters() -> None:
    running, failed = step(title="Install", state="running"), step(title="Clone", state="failed", message="")
    assert setup_sentence(parse_setup({"steps": [failed, running]})) == "Install"
    assert setup_sentence(parse_setup({"steps": [step(progress={"percent": 5})]})) == "Clone"
    assert setup_sentence(parse_setup({"steps": [step(progress={"step": "Receiving"})]})) == "Clone: receiving"
    assert setup_sentence(parse_setup({"steps": [failed]})) == "Clone failed."
    assert setup_sentence(parse_setup({"error": "no space", "ignored": [["a", "b"]]})) == "no space"
    five = [[key, ""] for key in "abcde"]
    assert setup_sentence(parse_setup({"ignored": five})) == (
        "Of devcontainer.json, a, b, c, d, e have no effect here."
    )
    assert len(setup_sentence(parse_setup({"ignored": [["k" * 999, ""]]}))) < 120


def test_expected_ports_are_those_of_the_template_then_of_the_repository() -> None:
    assert expected_ports([3000, 80], parse_setup({"ports": [80, 5173]})) == (3000, 80, 5173)
    assert expected_ports([3000], None) == (3000,)


@pytest.mark.parametrize("state", list(StepState))
def test_only_a_step_that_runs_in_the_workspace_is_skipped(state: StepState) -> None:
    assert SetupStep("clone", "Clone", state).may_skip is (state is StepState.RUNNING)
    assert not SetupStep("image-build", "Build", state).may_skip
