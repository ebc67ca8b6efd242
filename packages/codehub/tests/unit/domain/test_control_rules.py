"""The rules of the control loop, one by one: what an observation means, what follows from it, and what a row becomes."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codehub.domain.errors import ArchiveCorrupted, DataLost, OutOfSpace, Transient
from codehub.domain.gc import ORPHAN_GRACE, Claim, archive_key_of, is_due, is_protected
from codehub.domain.judge import level_of, phase_of, violation_of
from codehub.domain.model import (
    Blocked,
    Condition,
    Conditions,
    ConditionStatus,
    DesiredState,
    ErrorReason,
    HomeCtx,
    Operation,
    Phase,
    Progress,
    Workspace,
)
from codehub.domain.observed import (
    UNREACHABLE_AFTER,
    InstanceSeen,
    Observed,
    VolumeSeen,
    VolumeState,
    apply_observation,
    blocked_by_unseen,
)
from codehub.domain.plan import Begin, Cancel, CarryOn, Complete, Decision, Fail, Heal, Rest, Wait, decide, observe
from codehub.domain.progress import (
    Failure,
    backoff_s,
    begin,
    block,
    cancel,
    complete,
    fail,
    failure_of,
    heal,
    is_found_again,
    spread,
    to_error,
)
from codehub.domain.stores import Absent, Use, judge_store, too_many_losses
from codehub.domain.stores import Claim as Claim_
from codehub.domain.transitions import is_done
from testing.codehub.workspaces import NOW, WORKSPACE_ID, workspace

KEY = archive_key_of(WORKSPACE_ID, "op-1")
CTX = HomeCtx("inc-1")
SECOND = timedelta(seconds=1)
WHOLE, ABSENT, PARTIAL = (
    VolumeSeen(VolumeState.WHOLE, CTX),
    VolumeSeen(VolumeState.ABSENT),
    VolumeSeen(VolumeState.INCOMPLETE),
)
GONE, STOPPED = InstanceSeen(exists=False), InstanceSeen(exists=True)
STARTS = InstanceSeen(exists=True, running=True)
RUNS = InstanceSeen(exists=True, running=True, healthy=True)
SICK = InstanceSeen(exists=True, running=True, healthy=False, detail="exit 1")

ASLEEP = replace(workspace(desired=DesiredState.STANDBY), phase=Phase.STANDBY, home_ctx=CTX)
RUNNING = replace(ASLEEP, phase=Phase.RUNNING, desired_state=DesiredState.RUNNING)
ARCHIVED = replace(ASLEEP, phase=Phase.ARCHIVED, desired_state=DesiredState.ARCHIVED, home_ctx=None, archive_key=KEY)


def step(row: Workspace, volume: VolumeSeen | None, archive: bool | None, instance: InstanceSeen | None) -> Decision:
    """Return the decision after this observation."""
    return decide(observe(row, Observed(volume, archive, instance), NOW), NOW, was=row.phase)


@pytest.mark.parametrize(
    ("row", "seen", "decision"),
    [
        # Converged.
        (ASLEEP, (WHOLE, None, GONE), Rest()),
        (RUNNING, (WHOLE, None, RUNS), Rest()),
        (ARCHIVED, (ABSENT, True, GONE), Rest()),
        # Up.
        (replace(ASLEEP, desired_state=DesiredState.RUNNING), (WHOLE, None, GONE), Begin(Operation.STARTING)),
        (replace(ARCHIVED, desired_state=DesiredState.RUNNING), (ABSENT, True, GONE), Begin(Operation.RESTORING)),
        (workspace(), (ABSENT, None, GONE), Begin(Operation.PROVISIONING)),
        (workspace(desired=DesiredState.ARCHIVED), (ABSENT, None, GONE), Begin(Operation.CREATE_EMPTY_ARCHIVE)),
        (replace(workspace(), copy_of="other"), (ABSENT, None, GONE), Begin(Operation.DUPLICATING)),
        # A copy whose archive is there is restored like any other.
        (replace(workspace(), copy_of="other", archive_key=KEY), (ABSENT, True, GONE), Begin(Operation.RESTORING)),
        # Down.
        (replace(RUNNING, desired_state=DesiredState.STANDBY), (WHOLE, None, RUNS), Begin(Operation.STOPPING)),
        (replace(RUNNING, desired_state=DesiredState.STANDBY), (WHOLE, None, SICK), Begin(Operation.STOPPING)),
        (replace(ASLEEP, desired_state=DesiredState.ARCHIVED), (WHOLE, None, STOPPED), Begin(Operation.ARCHIVING)),
        (replace(ASLEEP, desired_state=DesiredState.DELETED), (WHOLE, None, GONE), Begin(Operation.ARCHIVING)),
        (replace(ARCHIVED, desired_state=DesiredState.DELETED), (ABSENT, True, GONE), Begin(Operation.DELETING)),
        (replace(workspace(desired=DesiredState.DELETED)), (ABSENT, None, GONE), Begin(Operation.DELETING)),
        # A running instance that is gone or sick is started again.
        (RUNNING, (WHOLE, None, GONE), Begin(Operation.STARTING, again=True)),
        (RUNNING, (WHOLE, None, SICK), Begin(Operation.STARTING, again=True)),
        # Nothing is done while something that matters is unknown.
        (RUNNING, (None, None, RUNS), Rest()),
        (RUNNING, (WHOLE, None, None), Rest()),
        (replace(RUNNING, desired_state=DesiredState.STANDBY), (WHOLE, None, None), Rest()),
        (replace(ARCHIVED, desired_state=DesiredState.RUNNING), (ABSENT, None, GONE), Rest()),
        (replace(ARCHIVED, desired_state=DesiredState.RUNNING), (None, True, GONE), Rest()),
        # Losses.
        (ASLEEP, (ABSENT, None, GONE), Fail(ErrorReason.DATA_LOST, "the home is recorded but not there whole")),
        (ASLEEP, (PARTIAL, None, GONE), Fail(ErrorReason.DATA_LOST, "the home is recorded but not there whole")),
        (ARCHIVED, (ABSENT, False, GONE), Fail(ErrorReason.DATA_LOST, "the archive is gone and there is no volume")),
        (
            ARCHIVED,
            (ABSENT, True, RUNS),
            Fail(ErrorReason.CONTAINER_WITHOUT_VOLUME, "an instance runs without its volume"),
        ),
        # Rows that are not to be touched.
        (replace(ASLEEP, deleted_at=NOW), (ABSENT, None, GONE), Rest()),
        (replace(ASLEEP, of_newer_version=True), (ABSENT, None, GONE), Rest()),
    ],
)
def test_the_next_step_follows_from_what_is_seen_and_desired(
    row: Workspace, seen: tuple[Any, Any, Any], decision: Decision
) -> None:
    assert step(row, *seen) == decision


def _under_way(operation: Operation, row: Workspace = ASLEEP, **changes: Any) -> Workspace:
    return replace(row, operation=operation, op_started_at=NOW, archive_op_id="op-2", **changes)


_OWN_KEY = archive_key_of(WORKSPACE_ID, "op-2")


@pytest.mark.parametrize(
    ("row", "seen", "decision"),
    [
        (_under_way(Operation.STARTING), (WHOLE, None, GONE), CarryOn(Operation.STARTING)),
        (_under_way(Operation.STARTING), (WHOLE, None, STARTS), CarryOn(Operation.STARTING)),
        (_under_way(Operation.STARTING), (WHOLE, None, RUNS), Complete(Operation.STARTING)),
        (_under_way(Operation.STARTING), (None, None, RUNS), Rest()),
        (_under_way(Operation.STOPPING, RUNNING), (WHOLE, None, STOPPED), Complete(Operation.STOPPING)),
        (_under_way(Operation.STOPPING, RUNNING), (WHOLE, None, SICK), CarryOn(Operation.STOPPING)),
        (_under_way(Operation.STOPPING, RUNNING), (WHOLE, None, None), Rest()),
        (_under_way(Operation.ARCHIVING), (WHOLE, None, GONE), CarryOn(Operation.ARCHIVING)),
        (_under_way(Operation.ARCHIVING, archive_key=_OWN_KEY), (ABSENT, True, GONE), Complete(Operation.ARCHIVING)),
        # An older archive does not replace a volume that disappeared, and a partly removed one is not gone.
        (_under_way(Operation.ARCHIVING, archive_key=KEY), (ABSENT, True, GONE), CarryOn(Operation.ARCHIVING)),
        (_under_way(Operation.ARCHIVING, archive_key=_OWN_KEY), (PARTIAL, True, GONE), CarryOn(Operation.ARCHIVING)),
        (
            _under_way(Operation.RESTORING, ARCHIVED),
            (VolumeSeen(VolumeState.WHOLE, HomeCtx("inc-9", KEY)), True, GONE),
            Complete(Operation.RESTORING),
        ),
        (
            _under_way(Operation.RESTORING, ARCHIVED),
            (VolumeSeen(VolumeState.WHOLE, HomeCtx("inc-9", "other")), True, GONE),
            CarryOn(Operation.RESTORING),
        ),
        (_under_way(Operation.DELETING), (ABSENT, None, GONE), Complete(Operation.DELETING)),
        (_under_way(Operation.DELETING), (ABSENT, None, STOPPED), CarryOn(Operation.DELETING)),
        (_under_way(Operation.DELETING), (PARTIAL, None, GONE), CarryOn(Operation.DELETING)),
        # A home that is lost in the middle of an operation that does not touch it.
        (
            _under_way(Operation.STARTING),
            (ABSENT, None, GONE),
            Fail(ErrorReason.DATA_LOST, "the home is recorded but not there whole"),
        ),
        # Its owner cancelled it, and it is this operation that was cancelled.
        (
            _under_way(Operation.STARTING, cancel_op_started_at=NOW),
            (WHOLE, None, GONE),
            Cancel(Operation.STARTING),
        ),
        (
            _under_way(Operation.STARTING, cancel_op_started_at=NOW - SECOND),
            (WHOLE, None, GONE),
            CarryOn(Operation.STARTING),
        ),
        (
            _under_way(Operation.ARCHIVING, cancel_op_started_at=NOW, archive_key=_OWN_KEY),
            (PARTIAL, True, GONE),
            CarryOn(Operation.ARCHIVING),
        ),
        # Done and cancelled at once: it is done.
        (_under_way(Operation.STARTING, cancel_op_started_at=NOW), (WHOLE, None, RUNS), Complete(Operation.STARTING)),
        (_under_way(Operation.STARTING, retry_at=NOW + SECOND), (WHOLE, None, GONE), Wait(NOW + SECOND)),
        (_under_way(Operation.STARTING, retry_at=NOW), (WHOLE, None, GONE), CarryOn(Operation.STARTING)),
    ],
)
def test_an_operation_under_way_goes_on_until_it_is_seen_done(
    row: Workspace, seen: tuple[Any, Any, Any], decision: Decision
) -> None:
    assert step(row, *seen) == decision


def test_nothing_begins_before_the_time_of_the_retry() -> None:
    row = replace(ASLEEP, desired_state=DesiredState.RUNNING, retry_at=NOW + SECOND)
    assert step(row, WHOLE, None, GONE) == Wait(NOW + SECOND)
    assert step(replace(row, retry_at=NOW), WHOLE, None, GONE) == Begin(Operation.STARTING)


# Errors and their end.

_LOST = replace(ASLEEP, phase=Phase.ERROR, error_reason=ErrorReason.DATA_LOST)


def test_a_workspace_in_error_rests_until_it_is_deleted_or_healed() -> None:
    failed = replace(_LOST, error_reason=ErrorReason.TIMEOUT)
    assert step(failed, WHOLE, None, GONE) == Rest()
    assert step(replace(failed, desired_state=DesiredState.DELETED), WHOLE, None, GONE) == Begin(Operation.DELETING)
    assert step(_LOST, ABSENT, None, GONE) == Rest()
    assert step(_LOST, WHOLE, None, GONE) == Heal()


@pytest.mark.parametrize(
    ("row", "seen", "found"),
    [
        (_LOST, (WHOLE, None, GONE), True),
        (_LOST, (None, None, GONE), False),
        (_LOST, (VolumeSeen(VolumeState.WHOLE, HomeCtx("inc-2")), None, GONE), False),
        (replace(_LOST, home_ctx=None, archive_key=KEY), (ABSENT, True, GONE), True),
        (replace(_LOST, home_ctx=None, archive_key=KEY), (ABSENT, None, GONE), False),
        (replace(_LOST, home_ctx=None, archive_key=KEY), (None, True, GONE), False),
        (replace(_LOST, home_ctx=None), (ABSENT, True, GONE), False),
        (replace(_LOST, error_reason=ErrorReason.TIMEOUT), (WHOLE, None, GONE), False),
        (replace(_LOST, desired_state=DesiredState.DELETED), (WHOLE, None, GONE), False),
    ],
)
def test_lost_data_is_found_when_exactly_the_recorded_data_is_seen(
    row: Workspace, seen: tuple[Any, Any, Any], found: bool
) -> None:
    assert is_found_again(observe(row, Observed(*seen), NOW)) is found


def test_healing_clears_the_error_and_nothing_else() -> None:
    row = replace(_LOST, error_message="gone", error_count=3, retry_at=NOW)
    healed = heal(row)
    assert healed == replace(row, error_reason=None, error_message=None, error_count=0, retry_at=None)


def test_an_instance_without_its_volume_is_stopped_when_its_user_retries() -> None:
    """The user started it again, which cleared the reason; the phase is still ERROR."""
    retried = replace(workspace(), phase=Phase.ERROR)
    assert step(retried, ABSENT, None, RUNS) == Begin(Operation.STOPPING)
    assert step(replace(retried, phase=Phase.PENDING), ABSENT, None, RUNS) == Fail(
        ErrorReason.CONTAINER_WITHOUT_VOLUME, "an instance runs without its volume"
    )


def _seen(row: Workspace, **conditions: Condition) -> Workspace:
    return replace(row, conditions=replace(row.conditions, **conditions))


def test_a_violation_keeps_the_phase_until_it_is_recorded_with_its_reason() -> None:
    broken = _seen(ASLEEP, healthy=Condition(ConditionStatus.FALSE, "DataLost"))
    assert violation_of(broken) is ErrorReason.DATA_LOST
    assert level_of(broken) is Phase.ERROR
    assert phase_of(broken) is Phase.STANDBY
    assert phase_of(replace(broken, error_reason=ErrorReason.DATA_LOST)) is Phase.ERROR
    assert violation_of(_seen(ASLEEP, healthy=Condition(ConditionStatus.FALSE, "New"))) is ErrorReason.ACTION_FAILED
    assert violation_of(ASLEEP) is None


def test_a_deletion_is_shown_before_everything_else() -> None:
    assert phase_of(replace(_LOST, desired_state=DesiredState.DELETED)) is Phase.DELETING
    assert phase_of(replace(_LOST, deleted_at=NOW)) is Phase.DELETED


def test_an_archive_that_is_lost_while_it_is_deleted_leaves_nothing() -> None:
    row = replace(ARCHIVED, desired_state=DesiredState.DELETED, operation=Operation.DELETING)
    looked = observe(row, Observed(ABSENT, False, GONE), NOW)
    assert level_of(looked) is Phase.PENDING
    assert level_of(observe(row, Observed(ABSENT, True, GONE), NOW)) is Phase.ARCHIVED
    assert level_of(observe(row, Observed(ABSENT, None, GONE), NOW)) is None


# What an observation says.


def _conditions(row: Workspace, seen: Observed) -> Conditions:
    return apply_observation(row, seen, NOW).conditions


def test_each_part_that_could_not_be_seen_says_why() -> None:
    why = {"volume": "disk down", "archive": "S3 down", "instance": "Docker down"}
    seen = _conditions(ARCHIVED, Observed(unseen=why))
    assert [seen.volume_ready.message, seen.archive_ready.message, seen.container_ready.message] == list(why.values())
    assert all(
        condition.is_unknown
        for condition in (seen.volume_ready, seen.archive_ready, seen.container_ready, seen.healthy)
    )
    assert _conditions(ARCHIVED, Observed()).volume_ready.message
    node = _conditions(RUNNING, Observed(WHOLE, None, InstanceSeen(exists=True, unknown="the node is away")))
    assert node.container_ready.is_unknown
    assert node.container_ready.message == "the node is away"


def test_an_instance_that_has_not_answered_yet_keeps_what_was_known_of_it() -> None:
    for before in (RUNS, SICK):
        known = observe(RUNNING, Observed(WHOLE, None, before), NOW)
        again = observe(known, Observed(WHOLE, None, STARTS), NOW)
        assert again.conditions.container_ready == known.conditions.container_ready
    new = observe(ASLEEP, Observed(WHOLE, None, STARTS), NOW)
    assert new.conditions.container_ready.reason == "NotAnswered"
    stopped = observe(ASLEEP, Observed(WHOLE, None, STOPPED), NOW)
    assert observe(stopped, Observed(WHOLE, None, STARTS), NOW).conditions.container_ready.is_unknown


def test_the_time_of_a_transition_changes_with_the_status_alone() -> None:
    first = observe(RUNNING, Observed(WHOLE, None, RUNS), NOW)
    later = observe(first, Observed(WHOLE, None, RUNS), NOW + SECOND)
    assert later.conditions.container_ready.last_transition_time == NOW
    sick = observe(later, Observed(WHOLE, None, SICK), NOW + 2 * SECOND)
    assert sick.conditions.container_ready.last_transition_time == NOW + 2 * SECOND
    assert sick.conditions.container_ready.message == "exit 1"
    gone = observe(sick, Observed(WHOLE, None, GONE), NOW + 3 * SECOND)
    assert gone.conditions.container_ready.last_transition_time == NOW + 2 * SECOND, "still False"


def test_the_phase_changes_with_its_time() -> None:
    runs = observe(replace(ASLEEP, desired_state=DesiredState.RUNNING), Observed(WHOLE, None, RUNS), NOW + SECOND)
    assert (runs.phase, runs.phase_changed_at) == (Phase.RUNNING, NOW + SECOND)
    assert observe(runs, Observed(WHOLE, None, RUNS), NOW + 2 * SECOND).phase_changed_at == NOW + SECOND


def test_a_volume_that_holds_exactly_what_is_recorded_is_adopted() -> None:
    made = observe(workspace(), Observed(WHOLE, None, GONE), NOW)
    assert made.home_ctx == CTX
    restored = observe(
        replace(ARCHIVED, home_ctx=None), Observed(VolumeSeen(VolumeState.WHOLE, CTX), True, GONE), NOW
    )
    assert restored.home_ctx is None, "it was not made from this archive"
    assert restored.conditions.volume_ready.is_false
    unnamed = observe(ASLEEP, Observed(VolumeSeen(VolumeState.WHOLE), None, GONE), NOW)
    assert unnamed.conditions.volume_ready.is_true, "a store that keeps no incarnation"
    assert observe(workspace(), Observed(VolumeSeen(VolumeState.WHOLE), None, GONE), NOW).home_ctx is None


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
        unseen={part: "it is down"},
    )
    first = observe(ARCHIVED, away, NOW)
    assert first.blocked is None
    assert observe(first, away, NOW + UNREACHABLE_AFTER - SECOND).blocked is None
    late = observe(first, away, NOW + UNREACHABLE_AFTER)
    assert late.blocked == Blocked(ErrorReason.UNREACHABLE, "it is down", NOW)
    assert observe(late, Observed(ABSENT, True, GONE), NOW + UNREACHABLE_AFTER).blocked is None


def test_what_was_never_looked_at_blocks_nothing_and_an_error_hides_what_blocks() -> None:
    assert blocked_by_unseen(workspace(), NOW + timedelta(days=1)) is None
    away = Observed(None, True, GONE, unseen={"volume": "it is down"})
    first = observe(_LOST, away, NOW)
    assert observe(first, away, NOW + UNREACHABLE_AFTER).blocked is None
    # While an operation is under way, its own report stays.
    full = Blocked(ErrorReason.OUT_OF_SPACE, "full", NOW)
    archiving = _under_way(Operation.ARCHIVING, blocked=full)
    assert observe(archiving, Observed(WHOLE, None, GONE), NOW).blocked == full
    assert observe(replace(ASLEEP, blocked=full), Observed(WHOLE, None, GONE), NOW).blocked is None


# How an operation begins, fails and ends.


def test_an_intent_begins_clean() -> None:
    used = replace(
        ASLEEP,
        progress=Progress("x"),
        blocked=Blocked(ErrorReason.OUT_OF_SPACE, "full", NOW),
        retry_at=NOW,
        error_count=3,
        archive_op_id="op-1",
    )
    begun = begin(used, Operation.STARTING, "op-9", NOW + SECOND)
    assert (begun.operation, begun.op_started_at) == (Operation.STARTING, NOW + SECOND)
    assert (begun.progress, begun.blocked, begun.retry_at, begun.error_count) == (None, None, None, 0)
    assert (begun.archive_op_id, begun.home_ctx) == ("op-1", CTX)
    assert begin(used, Operation.DUPLICATING, "op-9", NOW).archive_op_id == "op-9"
    assert begin(used, Operation.RESTORING, "op-9", NOW).home_ctx is None


def test_a_completed_operation_leaves_no_trace_of_its_failures() -> None:
    row = _under_way(Operation.STARTING, error_count=2, error_message="x", retry_at=NOW, progress=Progress("x"))
    done = complete(replace(row, error_reason=ErrorReason.TIMEOUT), NOW)
    assert (done.operation, done.op_started_at, done.progress, done.retry_at) == (Operation.NONE, None, None, None)
    assert (done.error_count, done.error_reason, done.error_message) == (0, None, None)
    assert (done.home_ctx, done.deleted_at) == (CTX, None)
    deleted = complete(_under_way(Operation.DELETING), NOW + SECOND)
    assert (deleted.deleted_at, deleted.phase, deleted.phase_changed_at) == (
        NOW + SECOND,
        Phase.DELETED,
        NOW + SECOND,
    )


def test_a_cancelled_archive_begins_its_time_asleep_again() -> None:
    later = NOW + SECOND
    row = _under_way(Operation.ARCHIVING, error_count=2, retry_at=NOW)
    ended = cancel(row, later)
    assert (ended.operation, ended.op_started_at, ended.error_count, ended.retry_at) == (
        Operation.NONE,
        None,
        0,
        None,
    )
    assert (ended.phase_changed_at, ended.archive_op_id) == (later, "op-2")
    assert cancel(_under_way(Operation.STARTING), later).phase_changed_at == NOW


@pytest.mark.parametrize(
    ("error", "reason", "terminal"),
    [
        (Transient("x"), ErrorReason.ACTION_FAILED, False),
        (OutOfSpace("x"), ErrorReason.OUT_OF_SPACE, False),
        (DataLost("x"), ErrorReason.DATA_LOST, True),
        (ArchiveCorrupted("x"), ErrorReason.ARCHIVE_CORRUPTED, True),
    ],
)
def test_the_type_of_an_error_decides_whether_it_is_retried(
    error: Transient, reason: ErrorReason, terminal: bool
) -> None:
    assert failure_of(error) == Failure(reason, "x", terminal)
    assert failure_of(type(error)()).message == type(error).__name__


def _failed(row: Workspace, failure: Failure, *, max_retry: int = 3) -> Workspace:
    return fail(row, failure, NOW, max_retry=max_retry, jitter=0.5)


def test_an_attempt_is_repeated_ever_later_until_there_were_enough() -> None:
    row, again = _under_way(Operation.STARTING, progress=Progress("x")), Failure(ErrorReason.ACTION_FAILED, "why")
    first = _failed(row, again)
    assert (first.error_count, first.retry_at, first.progress) == (1, NOW + 2 * SECOND, None)
    second = _failed(first, again)
    assert (second.error_count, second.retry_at) == (2, NOW + 4 * SECOND)
    third = _failed(second, again)
    assert (third.phase, third.error_reason, third.error_count) == (Phase.ERROR, ErrorReason.RETRY_EXCEEDED, 3)
    assert (third.error_message, third.operation, third.retry_at) == ("why", Operation.NONE, None)


def test_what_cannot_be_repaired_by_a_retry_ends_at_once() -> None:
    ended = _failed(_under_way(Operation.RESTORING), Failure(ErrorReason.ARCHIVE_CORRUPTED, "why", terminal=True))
    assert (ended.phase, ended.error_reason, ended.error_count) == (Phase.ERROR, ErrorReason.ARCHIVE_CORRUPTED, 1)


def test_a_deletion_never_gives_up() -> None:
    row = _under_way(Operation.DELETING, desired_state=DesiredState.DELETED, error_count=1000)
    for failure in (Failure(ErrorReason.ACTION_FAILED, ""), Failure(ErrorReason.DATA_LOST, "", terminal=True)):
        again = _failed(row, failure)
        assert (again.operation, again.error_reason) == (Operation.DELETING, None)
        assert (again.error_count, again.retry_at) == (1001, NOW + timedelta(minutes=5))


def test_a_full_disk_is_waited_for_without_counting() -> None:
    row, full = _under_way(Operation.ARCHIVING, error_count=2), Failure(ErrorReason.OUT_OF_SPACE, "the disk is full")
    waits = _failed(row, full)
    assert waits.blocked == Blocked(ErrorReason.OUT_OF_SPACE, "the disk is full", NOW)
    assert (waits.error_count, waits.operation, waits.retry_at) == (2, Operation.ARCHIVING, NOW + 15 * SECOND)
    still = fail(waits, full, NOW + SECOND, max_retry=3, jitter=0)
    assert still.blocked is not None
    assert still.blocked.since == NOW, "since when it lasts"
    assert _failed(still, Failure(ErrorReason.ACTION_FAILED, "other")).blocked is None
    other = block(still, ErrorReason.UNREACHABLE, "down", NOW + SECOND)
    assert other.blocked == Blocked(ErrorReason.UNREACHABLE, "down", NOW + SECOND)


@given(st.integers(1, 10_000), st.floats(0, 1, exclude_max=True))
def test_the_time_between_attempts_doubles_with_a_spread_of_a_fifth_up_to_five_minutes(
    count: int, jitter: float
) -> None:
    plain = min(300.0, 2.0 ** min(count, 30))
    assert plain * 0.8 - 1e-6 <= backoff_s(count, jitter) <= min(300.0, plain * 1.2 + 1e-6)
    assert backoff_s(count, 0.5) == plain
    assert spread(10, 0) == pytest.approx(8)
    assert spread(10, 1) == pytest.approx(12)


def test_an_error_is_one_change_of_the_row() -> None:
    row = _under_way(Operation.STARTING, progress=Progress("x"), retry_at=NOW)
    broken = to_error(row, ErrorReason.TIMEOUT, 3, NOW + SECOND, "why")
    assert (broken.phase, broken.phase_changed_at, broken.operation) == (Phase.ERROR, NOW + SECOND, Operation.NONE)
    assert (broken.error_reason, broken.error_message, broken.error_count) == (ErrorReason.TIMEOUT, "why", 3)
    assert (broken.op_started_at, broken.progress, broken.retry_at, broken.archive_op_id) == (
        None,
        None,
        None,
        "op-2",
    )
    again = to_error(broken, ErrorReason.TIMEOUT, 1, NOW + 9 * SECOND)
    assert (again.phase_changed_at, again.error_message) == (NOW + SECOND, None)
    assert (
        to_error(replace(row, desired_state=DesiredState.DELETED), ErrorReason.TIMEOUT, 1, NOW).phase
        is Phase.DELETING
    )


# What the garbage collector keeps.


def _claim(**changes: Any) -> Claim:
    return replace(Claim(WORKSPACE_ID, Phase.ARCHIVED, None, None, frozenset()), **changes)


def test_the_only_copy_and_what_others_are_made_from_are_kept() -> None:
    assert not is_protected(_claim(), "op-1")
    assert is_protected(_claim(home_is_seen=False), "op-1")
    gone = _claim(phase=Phase.DELETED, purged_at=NOW)
    assert not is_protected(gone, "op-1")
    assert is_protected(replace(gone, used_by_others=frozenset({KEY})), "op-1")
    assert not is_protected(replace(gone, used_by_others=frozenset({KEY})), "op-2")
    copying = replace(gone, copying=frozenset({"op-5"}))
    assert is_protected(copying, "op-5.inc-1")
    assert not is_protected(copying, "op-6.inc-1")


def test_an_orphan_is_removed_after_its_grace() -> None:
    assert not is_due(NOW, NOW + ORPHAN_GRACE - SECOND)
    assert is_due(NOW, NOW + ORPHAN_GRACE)
    assert timedelta(hours=2) == ORPHAN_GRACE, "longer than any operation"


@pytest.mark.parametrize(
    ("has_data", "proven", "seen", "verdict"),
    [
        (False, False, None, Claim_()),
        (False, False, "id", Use("id", record=True)),
        (True, True, None, Claim_()),
        (True, True, "id", Use("id", record=True)),
        (True, False, None, None),
        (True, False, "id", None),
    ],
)
def test_a_store_without_a_record_is_taken_if_it_is_new_or_holds_our_data(
    has_data: bool, proven: bool, seen: str | None, verdict: object
) -> None:
    found = judge_store("homes", "/srv", seen, None, has_data=has_data, proven=proven)
    assert isinstance(found, Absent) if verdict is None else found == verdict


@pytest.mark.parametrize(
    ("lost", "total", "alarm"), [(3, 3, False), (4, 39, True), (4, 40, False), (4, 41, False), (0, 0, False)]
)
def test_many_losses_at_once_are_likelier_a_mistake(lost: int, total: int, alarm: bool) -> None:
    assert too_many_losses(lost, total, 3) is alarm


def test_a_restore_is_done_with_exactly_the_recorded_archive() -> None:
    ready = Conditions(volume_ready=Condition(ConditionStatus.TRUE, "Ready"))
    row = _under_way(Operation.RESTORING, ARCHIVED, conditions=ready)
    assert is_done(replace(row, home_ctx=HomeCtx("inc-9", KEY)))
    assert not is_done(replace(row, home_ctx=HomeCtx("inc-9", "another")))
    assert not is_done(replace(row, home_ctx=None))
