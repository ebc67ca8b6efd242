"""Work without traffic: what a workspace said of itself when it was about to be put to sleep, and for how long that counts.

A program that never ends keeps a workspace awake for `busy_max` at most, counted from when it was first found at work. A
person who comes in meanwhile begins that anew.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from codehub.domain.model import Busy, Phase, Workspace


@dataclass(frozen=True, slots=True)
class Work:
    """An answer of a workspace: there was work at `at`; `reason` names it for people."""

    at: datetime
    reason: str


def judge_busy(workspace: Workspace, work: Work | None, now: datetime, busy_max: timedelta) -> Busy | None:
    """What keeps it awake from now on; None: nothing does, or it did for too long."""
    if work is None:
        return None
    before = workspace.busy
    # An access after the last answer was a person's.
    continued = before is not None and (workspace.last_access_at is None or workspace.last_access_at <= before.at)
    since = before.since if continued and before is not None else now
    if now - since > busy_max:
        return None
    return Busy(work.reason, since, now)


def shown_busy(workspace: Workspace) -> Busy | None:
    """What a person is shown: why it does not go to sleep although nobody is there."""
    busy = workspace.busy
    if busy is None or workspace.phase is not Phase.RUNNING:
        return None
    return busy if workspace.last_access_at is None or workspace.last_access_at <= busy.at else None
