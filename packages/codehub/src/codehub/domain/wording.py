"""The texts for states, operations and errors, used by the API, the proxy's pages and the timeline.

Contains no text relative to the current time ("sleeps in 5 min"): the client computes those.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from codehub.domain.actions import NEEDS_ADMIN
from codehub.domain.disk import DiskLevel, disk_level
from codehub.domain.follow_schedule import Scheduled
from codehub.domain.model import ErrorReason, Operation, Phase, Progress, Status, Workspace
from codehub.domain.schedule import Moment
from codehub.domain.status import status_of
from codehub.domain.transitions import is_cancelled
from codehub.domain.units import format_amount


@dataclass(frozen=True, slots=True)
class OperationText:
    """`label` is the badge; `detail` is shown beside it until there is progress; the others are timeline entries."""

    label: str
    detail: str
    started: str
    done: str


@dataclass(frozen=True, slots=True)
class ErrorText:
    """What happened, and what to do. `admin_remedy` is set if an administrator has another remedy."""

    message: str
    remedy: str
    admin_remedy: str = ""


@dataclass(frozen=True, slots=True)
class Summary:
    """A workspace's state for users: one or two words, and a phrase that may be empty."""

    label: str
    text: str = ""


def scheduled_text(scheduled: Scheduled) -> str:
    """ "Starts Monday 23 Nov 08:53 Europe/Berlin"."""
    at = f"{scheduled.at:%A %d %b %H:%M} {scheduled.zone}"
    return f"Starts {at}" if scheduled.moment is Moment.START else f"Sleeps {at} unless it is in use"


OPERATIONS: Mapping[Operation, OperationText] = MappingProxyType(
    {
        Operation.PROVISIONING: OperationText(
            "Preparing", "creating its home", "Creating its home", "Its home is created"
        ),
        Operation.CREATE_EMPTY_ARCHIVE: OperationText(
            "Preparing", "creating an empty archive", "Creating an empty archive", "An empty archive is created"
        ),
        Operation.DUPLICATING: OperationText(
            "Copying", "reading the original's files", "Copying the original's files", "The files are copied"
        ),
        Operation.RESTORING: OperationText(
            "Restoring", "reading its archive", "Restoring its home from the archive", "Its home is restored"
        ),
        Operation.STARTING: OperationText("Starting", "waiting for the IDE to answer", "Starting the IDE", "Running"),
        Operation.STOPPING: OperationText("Stopping", "ending its processes", "Stopping", "Stopped"),
        Operation.ARCHIVING: OperationText("Archiving", "reading its files", "Archiving its home", "Archived"),
        Operation.DELETING: OperationText("Deleting", "removing what is left", "Deleting", "Deleted"),
    }
)

ERRORS: Mapping[ErrorReason, ErrorText] = MappingProxyType(
    {
        ErrorReason.TIMEOUT: ErrorText(
            "It took too long without any progress.", "Start it again; if it fails again, check its logs."
        ),
        ErrorReason.DATA_LOST: ErrorText(
            "Its home is not where it was left.",
            "Ask an administrator to recover it from one of its archives, or delete it.",
            "Recover it from one of its archives (`codehub admin recover`), or delete it.",
        ),
        ErrorReason.ARCHIVE_CORRUPTED: ErrorText(
            "Its archive does not match its checksum, so it was not restored.",
            "Ask an administrator to recover it from an older archive, or delete it.",
            "Recover it from an older archive (`codehub admin recover`), or delete it.",
        ),
        ErrorReason.IMAGE_PULL_FAILED: ErrorText(
            "Its image could not be pulled.", "Check the image's name and the registry, then start it again."
        ),
        ErrorReason.CONTAINER_WITHOUT_VOLUME: ErrorText(
            "It was running without its home.", "Stop it: the instance is removed first. Then start it again."
        ),
        ErrorReason.ACTION_FAILED: ErrorText("An operation failed.", "The timeline says why. Start it again."),
        ErrorReason.UNREACHABLE: ErrorText(
            "The backend it runs on could not be reached.", "Start it again; if it fails again, check its timeline."
        ),
        ErrorReason.OUT_OF_SPACE: ErrorText(
            "There is not enough disk space.", "It continues once there is space; ask an administrator."
        ),
        ErrorReason.RETRY_EXCEEDED: ErrorText(
            "It failed several times in a row.",
            "The timeline and the logs say why. Start it again once that is fixed.",
        ),
    }
)
_UNKNOWN_ERROR = ErrorText("Something went wrong.", "The timeline says why. Start it again.")

_PHASES: Mapping[Phase, str] = MappingProxyType(
    {
        Phase.PENDING: "New",
        Phase.ARCHIVED: "Archived",
        Phase.STANDBY: "Asleep",
        Phase.RUNNING: "Running",
        Phase.ERROR: "Error",
        Phase.DELETING: "Deleting",
        Phase.DELETED: "Deleted",
    }
)
# Between two operations: the coordinator is about to begin one.
_WAITING: Mapping[Status, Summary] = MappingProxyType(
    {
        Status.DELETED: Summary("Deleted"),
        Status.DELETING: Summary("Deleting", "its files are archived first"),
        Status.PROVISIONING: Summary("Waiting", "about to start"),
        Status.STOPPING: Summary("Stopping", "about to stop"),
        Status.CREATED: Summary("Not started"),
    }
)
# The backends' names of steps. The label already says "Archiving", "Restoring" or "Starting".
_STEPS = {
    "archive": "",
    "restore": "",
    "start": "",
    "pull": "pulling its image",
    "verify": "verifying what was written",
}
_INSTALL = re.compile(r"install ([\w-]+)(?:: (.+))?")


def error_text(reason: ErrorReason | None, *, is_admin: bool) -> tuple[str, str]:
    """Return what happened and what to do about it."""
    text = _UNKNOWN_ERROR if reason is None else ERRORS.get(reason, _UNKNOWN_ERROR)
    return text.message, (text.admin_remedy if is_admin else "") or text.remedy


def fixing_command(workspace: Workspace, *, is_admin: bool) -> str | None:
    """Return the command that applies the remedy of `error_text`, or None if this user has none."""
    if workspace.error_reason in NEEDS_ADMIN:
        return f"codehub admin recover {workspace.id}" if is_admin else None
    return f"codehub ws start {shlex.quote(workspace.name)}"


def unreachable_text(workspace: Workspace) -> str:
    """Return which backend does not answer, in the words of its card once that says so."""
    if workspace.blocked is not None and workspace.blocked.reason is ErrorReason.UNREACHABLE:
        return workspace.blocked.message
    return f"{workspace.instance_backend} does not answer"


def summarize(workspace: Workspace) -> Summary:
    status = status_of(workspace)
    if status is Status.ERROR:
        return Summary("Error", error_text(workspace.error_reason, is_admin=False)[0])
    blocked = workspace.blocked.message if workspace.blocked is not None else ""
    if workspace.operation is not Operation.NONE and status is not Status.DELETED:
        text = OPERATIONS[workspace.operation]
        cancelled = "being cancelled" if is_cancelled(workspace) else ""
        return Summary(text.label, cancelled or blocked or progress_text(workspace.progress) or text.detail)
    waiting = _WAITING.get(status) or Summary(_PHASES[workspace.phase])
    return Summary(waiting.label, blocked) if blocked else waiting


def progress_text(progress: Progress | None) -> str:
    """ "verifying what was written, 62 %, 410 MB of 660 MB"; empty when nothing is known."""
    if progress is None:
        return ""
    return ", ".join(part for part in (_step_text(progress.step), _amount_done(progress)) if part)


def disk_warning(used: int | None, limit: int | None) -> str:
    """Empty while there is nothing to warn about, or nothing is known."""
    level = disk_level(used, limit)
    if used is None or limit is None or level is None or level is DiskLevel.OK:
        return ""
    amount, size = format_amount(used), format_amount(limit)
    if level is DiskLevel.NEAR:
        return f"Its files use {amount}, almost all of its disk size of {size}."
    return f"Its files use {amount}, more than its disk size of {size}. Delete files that you do not need."


def _step_text(step: str) -> str:
    if found := _INSTALL.fullmatch(step):
        what, part = found.groups()
        return f"installing {what} ({part})" if part and part != what else f"installing {what}"
    return _STEPS.get(step, step)


def _amount_done(progress: Progress) -> str:
    done, total, unit = progress.done, progress.total, progress.unit
    if unit == "steps":
        return f"step {min(done + 1, total)} of {total}" if total is not None and total > 1 else ""
    if total:
        share = min(100, 100 * done // total)
        return f"{share} %, {format_amount(done, unit)} of {format_amount(total, unit)}"
    return format_amount(done, unit) if done else ""
