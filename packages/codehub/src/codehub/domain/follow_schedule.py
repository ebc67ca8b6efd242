"""Decides what a workspace's schedule requests now and next: a start, a stop, or nothing. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from codehub.domain.busy import shown_busy
from codehub.domain.errors import Invalid
from codehub.domain.model import DesiredState, Operation, Phase, Workspace
from codehub.domain.schedule import Moment, due_moment, next_start, next_stop, time_zone

# Older events are skipped: a coordinator that was down must not run Friday's start on Saturday.
LONGEST_DELAY = timedelta(hours=1)
# A workspace used this recently is in use: it keeps running, and its TTL applies.
_IN_USE = timedelta(minutes=10)


@dataclass(frozen=True, slots=True)
class Scheduled:
    moment: Moment
    at: datetime  # in the owner's time zone
    zone: str


def scheduled_state(workspace: Workspace, zone: str, since: datetime | None, now: datetime) -> DesiredState | None:
    """Return the scheduled desired state if it is due in (since, now] and nothing prevents it."""
    schedule = workspace.template.schedule if workspace.template is not None else None
    if schedule is None or since is None or workspace.deleted_at is not None or workspace.of_newer_version:
        return None
    try:
        moment = due_moment(schedule, workspace.id, time_zone(zone or "UTC"), max(since, now - LONGEST_DELAY), now)
    except Invalid:
        return None
    match moment:
        case None:
            return None
        case Moment.START:
            return DesiredState.RUNNING if _may_start(workspace) else None
        case Moment.STOP:
            return DesiredState.STANDBY if _may_stop(workspace, now) else None


def next_scheduled(workspace: Workspace, zone: str | None, now: datetime) -> Scheduled | None:
    """Return what the schedule does next: a start while the workspace rests, a stop while it runs.

    `zone` is the owner's time zone, empty for UTC; None if the owner's schedules are not followed.
    """
    schedule = workspace.template.schedule if workspace.template is not None else None
    if schedule is None or zone is None or workspace.deleted_at is not None or workspace.of_newer_version:
        return None
    try:
        there = time_zone(zone or "UTC")
    except Invalid:
        return None
    if _may_start(workspace):
        return Scheduled(Moment.START, next_start(schedule, workspace.id, there, now).astimezone(there), there.key)
    stop = next_stop(schedule, workspace.id, there, now)
    if stop is None or workspace.phase is not Phase.RUNNING or workspace.desired_state is not DesiredState.RUNNING:
        return None
    return Scheduled(Moment.STOP, stop.astimezone(there), there.key)


def _may_start(workspace: Workspace) -> bool:
    rests = workspace.desired_state in (DesiredState.STANDBY, DesiredState.ARCHIVED)
    return rests and workspace.phase is not Phase.ERROR and workspace.error_reason is None


def _may_stop(workspace: Workspace, now: datetime) -> bool:
    rests = workspace.phase is Phase.RUNNING and workspace.operation is Operation.NONE
    if not rests or workspace.desired_state is not DesiredState.RUNNING:
        return False
    if workspace.keep_awake_until is not None and workspace.keep_awake_until > now:
        return False
    in_use = workspace.last_access_at is not None and now - workspace.last_access_at < _IN_USE
    return not in_use and shown_busy(workspace) is None
