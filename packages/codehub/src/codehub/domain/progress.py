"""How an operation begins, completes, fails, is retried, and ends in ERROR: each as one complete change of the row.

Ids, times and jitter are arguments.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from codehub.domain.errors import CodeHubError, OutOfSpace, Terminal
from codehub.domain.model import Blocked, DesiredState, ErrorReason, Operation, Phase, Workspace

BACKOFF_FIRST_S = 2.0
BACKOFF_LONGEST_S = 300.0
# A spread of ±20 % keeps workspaces that failed together from retrying together.
_JITTER = 0.2
# Each of these may have to archive a volume's content, under an id that was never used before.
_TAKES_OP_ID = frozenset(
    {Operation.ARCHIVING, Operation.CREATE_EMPTY_ARCHIVE, Operation.RESTORING, Operation.DELETING}
) | {Operation.DUPLICATING}

# How often an operation that ran out of space is retried: checking for space is cheap.
_ROOM_AGAIN_S = 15.0

RESTARTS_ALLOWED = 3
RESTARTS_WINDOW = timedelta(minutes=10)


@dataclass(frozen=True, slots=True)
class Failure:
    """Why an attempt failed, and whether a retry can help."""

    reason: ErrorReason
    message: str
    terminal: bool = False


def failure_of(error: CodeHubError) -> Failure:
    """Classify an error. The exception's type is the retry class."""
    message = str(error) or type(error).__name__
    if isinstance(error, Terminal):
        return Failure(ErrorReason(error.reason), message, terminal=True)
    if isinstance(error, OutOfSpace):
        return Failure(ErrorReason.OUT_OF_SPACE, message)
    return Failure(ErrorReason.ACTION_FAILED, message)


def backoff_s(error_count: int, jitter: float) -> float:
    """Return 2 s, 4 s, 8 s … 5 min; `jitter` is in [0, 1)."""
    # the exponent is bounded, so that a deletion that failed a thousand times does not compute a huge number
    plain = min(BACKOFF_LONGEST_S, BACKOFF_FIRST_S * 2.0 ** min(error_count - 1, 16))
    return min(BACKOFF_LONGEST_S, spread(plain, jitter))


def spread(seconds: float, jitter: float) -> float:
    return seconds * (1 - _JITTER + 2 * _JITTER * jitter)


def begin(workspace: Workspace, operation: Operation, new_op_id: str, now: datetime) -> Workspace:
    """Set the intent, which is committed before the first side effect (INV-8)."""
    return replace(
        workspace,
        operation=operation,
        op_started_at=now,
        progress=None,
        blocked=None,
        retry_at=None,
        error_count=0,
        archive_op_id=new_op_id if operation in _TAKES_OP_ID else workspace.archive_op_id,
        # the intent clears the context: the restored volume provides the new one
        home_ctx=None if operation is Operation.RESTORING else workspace.home_ctx,
    )


def complete(workspace: Workspace, now: datetime) -> Workspace:
    """Record the outcome: operation, error_count and error_reason in one change (INV-4)."""
    operation = workspace.operation
    done = replace(
        workspace,
        operation=Operation.NONE,
        op_started_at=None,
        progress=None,
        blocked=None,
        error_count=0,
        error_reason=None,
        error_message=None,
        retry_at=None,
        home_ctx=None if operation in (Operation.ARCHIVING, Operation.DELETING) else workspace.home_ctx,
    )
    if operation is Operation.DELETING:
        return replace(done, deleted_at=now, phase=Phase.DELETED, phase_changed_at=now)
    return done


def cancel(workspace: Workspace, now: datetime) -> Workspace:
    """End an operation that its owner cancelled. `archive_op_id` stays, for the GC; the next operation uses another."""
    return replace(
        workspace,
        operation=Operation.NONE,
        op_started_at=None,
        progress=None,
        blocked=None,
        error_count=0,
        retry_at=None,
        # After a cancelled archive, the time in standby restarts, so that the workspace is not archived again immediately.
        phase_changed_at=now if workspace.operation is Operation.ARCHIVING else workspace.phase_changed_at,
    )


def fail(workspace: Workspace, failure: Failure, now: datetime, *, max_retry: int, jitter: float) -> Workspace:
    """After a failed attempt, schedule a retry or go to ERROR."""
    if failure.reason is ErrorReason.OUT_OF_SPACE:
        later = now + timedelta(seconds=spread(_ROOM_AGAIN_S, jitter))
        return replace(block(workspace, failure.reason, failure.message, now), retry_at=later, progress=None)
    workspace = replace(workspace, blocked=None)
    count = workspace.error_count + 1
    if workspace.operation is Operation.DELETING:
        # Deletion never gives up; it retries at the longest backoff.
        later = now + timedelta(seconds=BACKOFF_LONGEST_S)
        return replace(workspace, error_count=count, retry_at=later, progress=None)
    if failure.terminal:
        return to_error(workspace, failure.reason, count, now, failure.message)
    if count >= max_retry:
        return to_error(workspace, ErrorReason.RETRY_EXCEEDED, count, now, failure.message)
    later = now + timedelta(seconds=backoff_s(count, jitter))
    return replace(workspace, error_count=count, retry_at=later, progress=None)


def block(workspace: Workspace, reason: ErrorReason, message: str, now: datetime) -> Workspace:
    """Record what the workspace waits for. The start time is kept while the reason stays the same."""
    was = workspace.blocked
    since = was.since if was is not None and was.reason is reason else now
    return replace(workspace, blocked=Blocked(reason, message, since))


def is_found_again(workspace: Workspace) -> bool:
    """Return whether the data reported as DataLost exists: the recorded volume, or the archive if there is no volume."""
    if workspace.error_reason is not ErrorReason.DATA_LOST or workspace.desired_state is DesiredState.DELETED:
        return False
    seen = workspace.conditions
    if workspace.home_ctx is not None:
        return seen.volume_ready.is_true
    return workspace.archive_key is not None and seen.archive_ready.is_true and seen.volume_ready.is_false


def heal(workspace: Workspace) -> Workspace:
    """Clear the error. The next observation determines the phase again."""
    return replace(workspace, error_reason=None, error_message=None, error_count=0, retry_at=None)


def to_error(workspace: Workspace, reason: ErrorReason, count: int, now: datetime, message: str = "") -> Workspace:
    """Set phase, operation, error_reason and error_count in one change (INV-4). `archive_op_id` stays, for the GC."""
    phase = Phase.DELETING if workspace.desired_state is DesiredState.DELETED else Phase.ERROR
    return replace(
        workspace,
        phase=phase,
        phase_changed_at=workspace.phase_changed_at if workspace.phase is phase else now,
        operation=Operation.NONE,
        op_started_at=None,
        progress=None,
        blocked=None,
        error_reason=reason,
        error_message=message or None,
        error_count=count,
        retry_at=None,
    )
