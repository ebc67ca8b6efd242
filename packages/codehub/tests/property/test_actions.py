"""`allowed_actions` is what the server accepts; and words for every state, operation and error."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codehub.domain.actions import NEEDS_ADMIN, Action, Viewer, allowed_actions, check_allowed
from codehub.domain.errors import Conflict
from codehub.domain.model import DesiredState, ErrorReason, HomeCtx, Operation, Phase, Progress, Status, Workspace
from codehub.domain.status import status_of
from codehub.domain.units import format_amount
from codehub.domain.wording import ERRORS, OPERATIONS, error_text, progress_text, summarize
from testing.codehub.workspaces import workspace as a_workspace

NOW = datetime(2026, 11, 16, tzinfo=UTC)

workspaces = st.builds(
    lambda **changes: replace(a_workspace(), **changes),
    phase=st.sampled_from([Phase.PENDING, Phase.ARCHIVED, Phase.STANDBY, Phase.RUNNING, Phase.ERROR]),
    desired_state=st.sampled_from(DesiredState),
    operation=st.sampled_from(Operation),
    error_reason=st.none() | st.sampled_from(ErrorReason),
    last_access_at=st.none() | st.just(NOW),
    deleted_at=st.none() | st.just(NOW),
    purged_at=st.none() | st.just(NOW),
    home_ctx=st.none() | st.just(HomeCtx("i")),
    progress=st.none()
    | st.builds(
        Progress,
        st.sampled_from(["", "archive", "verify", "pull", "install code-server", "install code-server: node", "x"]),
        st.integers(0, 10**15),
        st.none() | st.integers(0, 10**15),
        st.sampled_from(["bytes", "steps", "files", ""]),
    ),
)
viewers = st.builds(Viewer, st.booleans(), st.booleans())


@given(workspaces, viewers)
def test_what_is_listed_is_accepted(workspace: Workspace, viewer: Viewer) -> None:
    for action in allowed_actions(workspace, viewer):
        check_allowed(action, workspace)


@given(workspaces, viewers)
def test_what_is_accepted_and_not_listed_is_desired_already_or_not_this_persons(
    workspace: Workspace, viewer: Viewer
) -> None:
    reserved = set() if viewer.is_admin else {Action.RECOVER, Action.UNDELETE}
    reserved |= set() if viewer.is_owner else {Action.OPEN}
    for action in set(Action) - reserved - set(allowed_actions(workspace, viewer)):
        try:
            check_allowed(action, workspace)
        except Conflict:
            continue
        # Asking for it changes nothing.
        assert action in (Action.START, Action.STOP, Action.ARCHIVE, Action.FORCE_DELETE)
        assert (
            workspace.desired_state is DesiredState.DELETED
            or workspace.error_reason is None
            or workspace.error_reason in NEEDS_ADMIN
        )


@given(workspaces)
def test_a_person_can_always_do_something_about_a_workspace_that_is_not_going(workspace: Workspace) -> None:
    offered = allowed_actions(workspace, Viewer())
    if status_of(workspace) in (Status.DELETING, Status.DELETED):
        assert offered == ()
    else:
        assert {Action.EDIT, Action.FORCE_DELETE} <= set(offered)


@pytest.mark.parametrize("reason", sorted(NEEDS_ADMIN))
def test_lost_data_is_for_an_administrator(reason: ErrorReason) -> None:
    lost = replace(a_workspace(), phase=Phase.ERROR, error_reason=reason, desired_state=DesiredState.RUNNING)
    assert set(allowed_actions(lost, Viewer())) == {Action.STOP, Action.EDIT, Action.DELETE, Action.FORCE_DELETE}
    assert Action.RECOVER in allowed_actions(lost, Viewer(is_admin=True))
    stopped = replace(lost, desired_state=DesiredState.ARCHIVED)  # stopping again would free no place
    assert Action.STOP not in allowed_actions(stopped, Viewer())
    with pytest.raises(Conflict, match="administrator"):
        check_allowed(Action.START, lost)


def test_a_refusal_says_the_state_and_from_which_it_works() -> None:
    with pytest.raises(Conflict, match=r"the workspace is RUNNING: you cannot start it now; only from CREATED"):
        check_allowed(Action.START, replace(a_workspace(), phase=Phase.RUNNING, desired_state=DesiredState.RUNNING))


def test_a_refusal_to_stop_a_start_says_that_it_can_be_cancelled() -> None:
    starting = replace(a_workspace(), phase=Phase.ARCHIVED, operation=Operation.RESTORING)
    with pytest.raises(Conflict, match=r"you cannot stop it now; cancel what is under way instead$"):
        check_allowed(Action.STOP, starting)


@given(workspaces)
def test_every_state_has_words(workspace: Workspace) -> None:
    summary = summarize(workspace)
    assert summary.label
    assert summary.text == summary.text.strip()
    assert "_" not in summary.label


def test_every_operation_and_every_error_has_words() -> None:
    assert set(OPERATIONS) == set(Operation) - {Operation.NONE}
    assert set(ERRORS) == set(ErrorReason)
    for reason in (None, *ErrorReason):
        assert all(error_text(reason, is_admin=is_admin) for is_admin in (True, False))
    assert "codehub admin recover" in error_text(ErrorReason.DATA_LOST, is_admin=True)[1]
    assert "administrator" in error_text(ErrorReason.DATA_LOST, is_admin=False)[1]


@pytest.mark.parametrize(
    ("progress", "text"),
    [
        (None, ""),
        (Progress("archive", 410_000_000, 660_000_000), "62 %, 410 MB of 660 MB"),
        (Progress("verify", 5, 10), "verifying what was written, 50 %, 5 bytes of 10 bytes"),
        (Progress("restore", 1_500_000), "1.5 MB"),
        (Progress("start", 1, 3, "steps"), "step 2 of 3"),
        (Progress("start", 0, 1, "steps"), ""),
        (Progress("install code-server: node", 0, 2, "steps"), "installing code-server (node), step 1 of 2"),
        (Progress("pull", 3, 4, "layers"), "pulling its image, 75 %, 3 layers of 4 layers"),
        (Progress("waiting for the IDE to answer", unit=""), "waiting for the IDE to answer"),
    ],
)
def test_progress_in_words(progress: Progress | None, text: str) -> None:
    assert progress_text(progress) == text


@given(st.integers(0, 10**18))
def test_an_amount_is_short(count: int) -> None:
    assert len(format_amount(count)) <= 12
