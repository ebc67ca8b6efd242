"""How an operation begins, fails, is retried, is cancelled and ends; what the garbage collector keeps."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codehub.domain.errors import ArchiveCorrupted, DataLost, OutOfSpace, Transient
from codehub.domain.gc import ORPHAN_GRACE, Claim, is_due, is_protected
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
from codehub.domain.progress import (
    Failure,
    backoff_s,
    begin,
    block,
    cancel,
    complete,
    fail,
    failure_of,
    spread,
    to_error,
)
from codehub.domain.transitions import is_done
from testing.codehub.observations import (
    ARCHIVED,
    ASLEEP,
    CTX,
    KEY,
    SECOND,
    under_way,
)
from testing.codehub.workspaces import NOW, WORKSPACE_ID


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
    row = under_way(Operation.STARTING, error_count=2, error_message="x", retry_at=NOW, progress=Progress("x"))
    done = complete(replace(row, error_reason=ErrorReason.TIMEOUT), NOW)
    assert (done.operation, done.op_started_at, done.progress, done.retry_at) == (Operation.NONE, None, None, None)
    assert (done.error_count, done.error_reason, done.error_message) == (0, None, None)
    assert (done.home_ctx, done.deleted_at) == (CTX, None)
    deleted = complete(under_way(Operation.DELETING), NOW + SECOND)
    assert (deleted.deleted_at, deleted.phase, deleted.phase_changed_at) == (
        NOW + SECOND,
        Phase.DELETED,
        NOW + SECOND,
    )


def test_a_cancelled_archive_begins_its_time_asleep_again() -> None:
    later = NOW + SECOND
    row = under_way(Operation.ARCHIVING, error_count=2, retry_at=NOW)
    ended = cancel(row, later)
    assert (ended.operation, ended.op_started_at, ended.error_count, ended.retry_at) == (
        Operation.NONE,
        None,
        0,
        None,
    )
    assert (ended.phase_changed_at, ended.archive_op_id) == (later, "op-2")
    assert cancel(under_way(Operation.STARTING), later).phase_changed_at == NOW


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
    row, again = under_way(Operation.STARTING, progress=Progress("x")), Failure(ErrorReason.ACTION_FAILED, "why")
    first = _failed(row, again)
    assert (first.error_count, first.retry_at, first.progress) == (1, NOW + 2 * SECOND, None)
    second = _failed(first, again)
    assert (second.error_count, second.retry_at) == (2, NOW + 4 * SECOND)
    third = _failed(second, again)
    assert (third.phase, third.error_reason, third.error_count) == (Phase.ERROR, ErrorReason.RETRY_EXCEEDED, 3)
    assert (third.error_message, third.operation, third.retry_at) == ("why", Operation.NONE, None)


def test_what_cannot_be_repaired_by_a_retry_ends_at_once() -> None:
    ended = _failed(under_way(Operation.RESTORING), Failure(ErrorReason.ARCHIVE_CORRUPTED, "why", terminal=True))
    assert (ended.phase, ended.error_reason, ended.error_count) == (Phase.ERROR, ErrorReason.ARCHIVE_CORRUPTED, 1)


def test_a_deletion_never_gives_up() -> None:
    row = under_way(Operation.DELETING, desired_state=DesiredState.DELETED, error_count=1000)
    for failure in (Failure(ErrorReason.ACTION_FAILED, ""), Failure(ErrorReason.DATA_LOST, "", terminal=True)):
        again = _failed(row, failure)
        assert (again.operation, again.error_reason) == (Operation.DELETING, None)
        assert (again.error_count, again.retry_at) == (1001, NOW + timedelta(minutes=5))


def test_a_full_disk_is_waited_for_without_counting() -> None:
    row, full = under_way(Operation.ARCHIVING, error_count=2), Failure(ErrorReason.OUT_OF_SPACE, "the disk is full")
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
    row = under_way(Operation.STARTING, progress=Progress("x"), retry_at=NOW)
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


def test_a_restore_is_done_with_exactly_the_recorded_archive() -> None:
    ready = Conditions(volume_ready=Condition(ConditionStatus.TRUE, "Ready"))
    row = under_way(Operation.RESTORING, ARCHIVED, conditions=ready)
    assert is_done(replace(row, home_ctx=HomeCtx("inc-9", KEY)))
    assert not is_done(replace(row, home_ctx=HomeCtx("inc-9", "another")))
    assert not is_done(replace(row, home_ctx=None))
