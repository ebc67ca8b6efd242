"""What an observation says about a workspace, and which backend it waits for."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from codehub.domain.model import (
    Blocked,
    Conditions,
    DesiredState,
    ErrorReason,
    Operation,
    Phase,
    Workspace,
)
from codehub.domain.observed import (
    UNREACHABLE_AFTER,
    InstanceSeen,
    Observed,
    Unseen,
    VolumeSeen,
    VolumeState,
    apply_observation,
    blocked_by_unseen,
)
from codehub.domain.plan import observe
from testing.codehub.observations import (
    ABSENT,
    ARCHIVED,
    ASLEEP,
    COMPLETE,
    CTX,
    GONE,
    LOST,
    RUNNING,
    RUNS,
    SECOND,
    SICK,
    STARTS,
    STOPPED,
    under_way,
)
from testing.codehub.workspaces import NOW, workspace


def _conditions(row: Workspace, seen: Observed) -> Conditions:
    return apply_observation(row, seen, NOW).conditions


def test_each_part_that_could_not_be_seen_says_why() -> None:
    why = {"volume": "disk down", "archive": "S3 down", "instance": "Docker down"}
    seen = _conditions(ARCHIVED, Observed(unseen={part: Unseen(text) for part, text in why.items()}))
    assert [seen.volume_ready.message, seen.archive_ready.message, seen.container_ready.message] == list(why.values())
    assert all(
        condition.is_unknown
        for condition in (seen.volume_ready, seen.archive_ready, seen.container_ready, seen.healthy)
    )
    assert _conditions(ARCHIVED, Observed()).volume_ready.message
    node = _conditions(RUNNING, Observed(COMPLETE, None, InstanceSeen(exists=True, unknown="the node is away")))
    assert node.container_ready.is_unknown
    assert node.container_ready.message == "the node is away"


def test_an_instance_that_has_not_answered_yet_keeps_what_was_known_of_it() -> None:
    for before in (RUNS, SICK):
        known = observe(RUNNING, Observed(COMPLETE, None, before), NOW)
        again = observe(known, Observed(COMPLETE, None, STARTS), NOW)
        assert again.conditions.container_ready == known.conditions.container_ready
    new = observe(ASLEEP, Observed(COMPLETE, None, STARTS), NOW)
    assert new.conditions.container_ready.reason == "NotAnswered"
    stopped = observe(ASLEEP, Observed(COMPLETE, None, STOPPED), NOW)
    assert observe(stopped, Observed(COMPLETE, None, STARTS), NOW).conditions.container_ready.is_unknown


def test_the_time_of_a_transition_changes_with_the_status_alone() -> None:
    first = observe(RUNNING, Observed(COMPLETE, None, RUNS), NOW)
    later = observe(first, Observed(COMPLETE, None, RUNS), NOW + SECOND)
    assert later.conditions.container_ready.last_transition_time == NOW
    sick = observe(later, Observed(COMPLETE, None, SICK), NOW + 2 * SECOND)
    assert sick.conditions.container_ready.last_transition_time == NOW + 2 * SECOND
    assert sick.conditions.container_ready.message == "exit 1"
    gone = observe(sick, Observed(COMPLETE, None, GONE), NOW + 3 * SECOND)
    assert gone.conditions.container_ready.last_transition_time == NOW + 2 * SECOND, "still False"


def test_the_phase_changes_with_its_time() -> None:
    runs = observe(replace(ASLEEP, desired_state=DesiredState.RUNNING), Observed(COMPLETE, None, RUNS), NOW + SECOND)
    assert (runs.phase, runs.phase_changed_at) == (Phase.RUNNING, NOW + SECOND)
    assert observe(runs, Observed(COMPLETE, None, RUNS), NOW + 2 * SECOND).phase_changed_at == NOW + SECOND


def test_a_volume_that_holds_exactly_what_is_recorded_is_adopted() -> None:
    made = observe(workspace(), Observed(COMPLETE, None, GONE), NOW)
    assert made.home_ctx == CTX
    restored = observe(
        replace(ARCHIVED, home_ctx=None), Observed(VolumeSeen(VolumeState.COMPLETE, CTX), True, GONE), NOW
    )
    assert restored.home_ctx is None, "it was not made from this archive"
    assert restored.conditions.volume_ready.is_false
    unnamed = observe(ASLEEP, Observed(VolumeSeen(VolumeState.COMPLETE), None, GONE), NOW)
    assert unnamed.conditions.volume_ready.is_true, "a store that keeps no incarnation"
    assert observe(workspace(), Observed(VolumeSeen(VolumeState.COMPLETE), None, GONE), NOW).home_ctx is None


@pytest.mark.parametrize("operation", list(Operation))
def test_a_recorded_volume_may_be_away_only_while_it_is_moved(operation: Operation) -> None:
    row = replace(ASLEEP, operation=operation, op_started_at=NOW, archive_op_id="op-2")
    healthy = _conditions(row, Observed(ABSENT, None, GONE)).healthy
    moved = operation in (Operation.ARCHIVING, Operation.RESTORING, Operation.DELETING)
    assert healthy.is_false is not moved


def test_an_instance_without_a_volume_is_expected_only_while_it_is_taken_away() -> None:
    for operation in Operation:
        row = replace(workspace(), operation=operation, op_started_at=NOW)
        healthy = _conditions(row, Observed(ABSENT, None, RUNS)).healthy
        assert healthy.is_true is (operation in (Operation.STOPPING, Operation.ARCHIVING, Operation.DELETING))
    assert _conditions(workspace(), Observed(ABSENT, None, None)).healthy.is_unknown


# Waiting for a backend.


@pytest.mark.parametrize("part", ["volume", "archive", "instance"])
def test_a_backend_that_stays_away_is_named_after_the_retries_and_not_before(part: str) -> None:
    away = Observed(
        None if part == "volume" else ABSENT,
        None if part == "archive" else True,
        None if part == "instance" else GONE,
        unseen={part: Unseen("it is down")},
    )
    first = observe(ARCHIVED, away, NOW)
    assert first.blocked is None
    assert observe(first, away, NOW + UNREACHABLE_AFTER - SECOND).blocked is None
    late = observe(first, away, NOW + UNREACHABLE_AFTER)
    assert late.blocked == Blocked(ErrorReason.UNREACHABLE, "it is down", NOW)
    assert observe(late, Observed(ABSENT, True, GONE), NOW + UNREACHABLE_AFTER).blocked is None


def test_a_backend_that_has_been_away_for_that_long_is_named_at_once() -> None:
    for age, is_named in ((UNREACHABLE_AFTER, True), (UNREACHABLE_AFTER - SECOND, False)):
        away = Observed(ABSENT, True, None, unseen={"instance": Unseen("it is down", NOW - age)})
        found = observe(ARCHIVED, away, NOW).blocked
        assert found == (Blocked(ErrorReason.UNREACHABLE, "it is down", NOW - age) if is_named else None)


def test_a_condition_is_unknown_since_its_backend_is_away_but_not_since_before_it_was_seen() -> None:
    seen = observe(ARCHIVED, Observed(ABSENT, True, GONE), NOW)
    away = Observed(ABSENT, True, None, unseen={"instance": Unseen("it is down", NOW - SECOND)})
    assert observe(seen, away, NOW + SECOND).conditions.container_ready.last_transition_time == NOW


def test_what_was_never_looked_at_blocks_nothing_and_an_error_hides_what_blocks() -> None:
    assert blocked_by_unseen(workspace(), NOW + timedelta(days=1)) is None
    away = Observed(None, True, GONE, unseen={"volume": Unseen("it is down")})
    first = observe(LOST, away, NOW)
    assert observe(first, away, NOW + UNREACHABLE_AFTER).blocked is None
    # While an operation is under way, its own report stays.
    full = Blocked(ErrorReason.OUT_OF_SPACE, "full", NOW)
    archiving = under_way(Operation.ARCHIVING, blocked=full)
    assert observe(archiving, Observed(COMPLETE, None, GONE), NOW).blocked == full
    assert observe(replace(ASLEEP, blocked=full), Observed(COMPLETE, None, GONE), NOW).blocked is None
