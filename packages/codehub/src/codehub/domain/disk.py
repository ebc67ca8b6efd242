"""How much of its disk size a home uses, and when it is measured again. It warns and stops nothing. Pure.

Where homes have quotas, the file system enforces the size as well (ports.homes.Homes.limit).
"""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import StrEnum

from codehub.domain.model import ErrorReason, Operation, Phase, Workspace

# Early enough to delete files before it is over.
_NEAR_PERCENT = 90
# Measuring one home takes at most this part of the time: 2 %.
_PAUSES = 50


class DiskLevel(StrEnum):
    OK = "ok"
    NEAR = "near"
    OVER = "over"


def disk_level(used: int | None, limit: int | None) -> DiskLevel | None:
    """None while the use is unknown, or where there is no limit: neither is OK."""
    if used is None or limit is None:
        return None
    if used > limit:
        return DiskLevel.OVER
    return DiskLevel.NEAR if used * 100 >= limit * _NEAR_PERCENT else DiskLevel.OK


def disk_limit(workspace: Workspace) -> int | None:
    return workspace.template.size.disk_bytes if workspace.template is not None else None


def disk_used(workspace: Workspace) -> int | None:
    """Of the home that is there: an archived workspace has none, and a lost one is of unknown size."""
    if workspace.home_ctx is None or workspace.error_reason is ErrorReason.DATA_LOST:
        return None
    return workspace.disk_bytes


def pause_after(took: timedelta, shortest: timedelta, longest: timedelta) -> timedelta:
    """How long a home that took so long to measure is left alone: a large one longer than a small one."""
    return min(longest, max(shortest, took * _PAUSES))


def is_to_measure(workspace: Workspace, now: datetime, every: timedelta) -> bool:
    """Nothing is under way, and its files may have changed since the last time, which is at least `every` ago."""
    if workspace.home_ctx is None or workspace.deleted_at is not None or workspace.operation is not Operation.NONE:
        return False
    if workspace.phase not in (Phase.RUNNING, Phase.STANDBY):
        return False
    last = workspace.disk_checked_at
    if last is None:
        return True
    return now - last >= every and (workspace.phase is Phase.RUNNING or workspace.phase_changed_at >= last)
