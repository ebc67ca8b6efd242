"""Work without traffic: what a workspace reports when it is about to be put to sleep, and how long the report counts.

A program that never ends keeps a workspace awake for at most `busy_max`, counted from when it was first reported. User
activity in the meantime restarts the count.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from codehub.domain.model import Busy, Phase, Workspace


@dataclass(frozen=True, slots=True)
class Work:
    """A workspace's report that it was working at `at`. `reason` describes the work to users."""

    at: datetime
    reason: str


def judge_busy(workspace: Workspace, work: Work | None, now: datetime, busy_max: timedelta) -> Busy | None:
    """Return what keeps the workspace awake from now on, or None if nothing does or the maximum is exceeded."""
    if work is None:
        return None
    before = workspace.busy
    # An access later than the last report came from a user.
    continued = before is not None and (workspace.last_access_at is None or workspace.last_access_at <= before.at)
    since = before.since if continued and before is not None else now
    if now - since > busy_max:
        return None
    return Busy(work.reason, since, now)


def shown_busy(workspace: Workspace) -> Busy | None:
    """Return the work to show to users as the reason why an idle workspace stays awake."""
    busy = workspace.busy
    if busy is None or workspace.phase is not Phase.RUNNING:
        return None
    return busy if workspace.last_access_at is None or workspace.last_access_at <= busy.at else None
