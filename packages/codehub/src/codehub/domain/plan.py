"""Decides the next step for one workspace: snapshot → decision. No side effects and no state."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import TypeAlias

from codehub.domain.judge import level_of, phase_of, violation_of
from codehub.domain.model import Condition, DesiredState, ErrorReason, Operation, Phase, Workspace
from codehub.domain.observed import Observed, apply_observation, blocked_by_unseen, instance_runs
from codehub.domain.progress import is_found_again
from codehub.domain.transitions import WORK, is_cancelled, is_done, next_edge


@dataclass(frozen=True, slots=True)
class Rest:
    """Converged, or undecidable: only the observation is stored."""


@dataclass(frozen=True, slots=True)
class Begin:
    """Commit this intent, then act on it (INV-8). `again` if a running instance was found gone or unhealthy."""

    operation: Operation
    again: bool = False


@dataclass(frozen=True, slots=True)
class CarryOn:
    """An operation is under way and no worker here runs it: act."""

    operation: Operation


@dataclass(frozen=True, slots=True)
class Complete:
    """The observation shows that the operation is done."""

    operation: Operation


@dataclass(frozen=True, slots=True)
class Cancel:
    """The owner cancelled the operation. Its effects so far remain; the next step follows the current desired state."""

    operation: Operation


@dataclass(frozen=True, slots=True)
class Fail:
    """An invariant is violated: go to ERROR with this reason."""

    reason: ErrorReason
    message: str


@dataclass(frozen=True, slots=True)
class Heal:
    """The lost data exists again and is complete: leave ERROR."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Do nothing before this time."""

    until: datetime


Decision: TypeAlias = Rest | Begin | CarryOn | Complete | Cancel | Fail | Heal | Wait


def observe(workspace: Workspace, seen: Observed, now: datetime) -> Workspace:
    """Return the workspace after an observation: conditions, an adopted ctx, the phase, and when the phase changed."""
    if workspace.deleted_at is not None or workspace.of_newer_version:
        return workspace
    observed = _blocked(apply_observation(workspace, seen, now), now)
    phase = phase_of(observed)
    return observed if phase is observed.phase else replace(observed, phase=phase, phase_changed_at=now)


def _blocked(workspace: Workspace, now: datetime) -> Workspace:
    """Set `blocked` while a backend is unreachable and clear it afterwards.

    Actions report what they wait for themselves.
    """
    unseen = blocked_by_unseen(workspace, now) if workspace.error_reason is None else None
    if unseen is None and workspace.operation is not Operation.NONE:
        return workspace
    return workspace if unseen == workspace.blocked else replace(workspace, blocked=unseen)


def decide(workspace: Workspace, now: datetime, *, was: Phase) -> Decision:
    """Return the next step for a workspace returned by `observe`. `was` is the phase before that observation."""
    if workspace.deleted_at is not None or workspace.of_newer_version:
        return Rest()
    if is_found_again(workspace):
        return Heal()
    judged_as = replace(workspace, phase=was)  # a recovery is recognized by the phase before
    violation = None if level_of(judged_as) is not Phase.ERROR else violation_of(workspace)
    if workspace.operation is not Operation.NONE:
        return _under_way(workspace, violation, now)
    level = level_of(judged_as)
    if level is None:
        return Rest()
    if level is Phase.ERROR and workspace.desired_state is not DesiredState.DELETED:
        if workspace.error_reason is None and violation is not None:
            return Fail(violation, workspace.conditions.healthy.message)
        return Rest()
    if workspace.retry_at is not None and workspace.retry_at > now:
        return Wait(workspace.retry_at)
    return _towards(workspace, level, was)


def _under_way(workspace: Workspace, violation: ErrorReason | None, now: datetime) -> Decision:
    if is_done(workspace):
        return Complete(workspace.operation)
    if is_cancelled(workspace):
        return Cancel(workspace.operation)
    if violation is not None and workspace.operation is not Operation.DELETING:
        return Fail(violation, workspace.conditions.healthy.message)
    if _blind_for(workspace, workspace.operation):
        return Rest()
    if workspace.retry_at is not None and workspace.retry_at > now:
        return Wait(workspace.retry_at)
    return CarryOn(workspace.operation)


def _blind_for(workspace: Workspace, operation: Operation) -> bool:
    """Return whether a condition that this operation needs before it changes anything could not be observed."""
    return any(_cannot_tell(workspace, name) for name in WORK[operation].needs)


def _cannot_tell(workspace: Workspace, name: str) -> bool:
    condition: Condition = getattr(workspace.conditions, name)
    if name == "container_ready":  # it only matters whether it runs, not whether it answers
        return instance_runs(condition) is None
    return condition.is_unknown


def _towards(workspace: Workspace, level: Phase, was: Phase) -> Decision:
    edge = next_edge(workspace, level)
    if edge is None or _blind_for(workspace, edge.operation):
        return Rest()
    return Begin(edge.operation, again=edge.operation is Operation.STARTING and was is Phase.RUNNING)
