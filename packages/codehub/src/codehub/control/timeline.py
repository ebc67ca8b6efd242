"""The lines a person reads in a workspace's timeline; operations are worded in `domain.wording`."""

from __future__ import annotations

from codehub.domain.model import Blocked, DesiredState, ErrorReason, Operation, Workspace
from codehub.domain.progress import Failure
from codehub.domain.units import format_amount
from codehub.domain.wording import OPERATIONS
from codehub.ports.control_store import TimelineEvent
from codehub.ports.homes import ArchiveReceipt

# Counted by `restarts_since`: an IDE that keeps exiting is not restarted for ever.
RESTARTING = "restarting"


def begun(workspace: Workspace, *, again: bool) -> TimelineEvent:
    detail = {"operation": workspace.operation.value, "desired_state": workspace.desired_state.value}
    if again:
        container = workspace.conditions.container_ready
        why = container.message or container.reason
        return TimelineEvent(RESTARTING, f"Starting again: it was found {container.reason}", {**detail, "found": why})
    stays = workspace.operation is Operation.STOPPING and workspace.desired_state is DesiredState.RUNNING
    if stays and workspace.dev_image_next is not None:
        return TimelineEvent("operation_started", "Restarting with the image of devcontainer.json", detail)
    return TimelineEvent("operation_started", OPERATIONS[workspace.operation].started, detail)


def done(operation: Operation) -> TimelineEvent:
    return TimelineEvent("operation_done", OPERATIONS[operation].done, {"operation": operation.value})


def cancelled(operation: Operation) -> TimelineEvent:
    label = OPERATIONS[operation].label
    return TimelineEvent("operation_cancelled", f"{label} was cancelled", {"operation": operation.value})


def failed(operation: Operation, failure: Failure, after: Workspace) -> TimelineEvent:
    detail: dict[str, object] = {
        "operation": operation.value,
        "reason": failure.reason.value,
        "detail": failure.message,
    }
    if after.blocked is not None:
        return blocked(after.blocked)
    if after.error_reason is not None:
        return error(after.error_reason, failure.message, operation)
    if after.retry_at is not None:
        detail["retry_at"] = after.retry_at.isoformat()
    return TimelineEvent("attempt_failed", f"Failed, and is tried again: {failure.message}", detail)


def blocked(why: Blocked) -> TimelineEvent:
    detail = {"reason": why.reason.value, "detail": why.message, "since": why.since.isoformat()}
    return TimelineEvent("blocked", f"Waiting: {why.message}", detail)


def unblocked(was: Blocked) -> TimelineEvent:
    return TimelineEvent("unblocked", "Going on", {"reason": was.reason.value, "detail": was.message})


def found_again() -> TimelineEvent:
    return TimelineEvent("found_again", "What was lost is back and complete: continuing")


def error(reason: ErrorReason, message: str, operation: Operation = Operation.NONE) -> TimelineEvent:
    detail = {"operation": operation.value, "reason": reason.value, "detail": message}
    return TimelineEvent("error", f"{reason.value}: {message}" if message else reason.value, detail)


def archived(receipt: ArchiveReceipt) -> TimelineEvent:
    detail = {"archive_key": receipt.archive_key, "bytes": receipt.bytes, "sha256": receipt.sha256}
    return TimelineEvent(
        "archive_committed", f"Its archive is committed and verified: {format_amount(receipt.bytes)}", detail
    )
