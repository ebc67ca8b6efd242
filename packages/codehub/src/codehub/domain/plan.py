"""What to do next with one workspace: snapshot → decision. Nothing is done here, and nothing is remembered."""

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
    """Converged, or nothing can be told: only the observation is worth keeping."""


@dataclass(frozen=True, slots=True)
class Begin:
    """Commit this intent, then act on it (INV-8). `again` when what ran was found gone or unhealthy."""

    operation: Operation
    again: bool = False


@dataclass(frozen=True, slots=True)
class CarryOn:
    """An operation is under way and nobody here works on it: act."""

    operation: Operation


@dataclass(frozen=True, slots=True)
class Complete:
    """The observation shows the operation done."""

    operation: Operation


@dataclass(frozen=True, slots=True)
class Cancel:
    """Its owner gave the operation up: what it did so far stays, and the next step is towards what is desired now."""

    operation: Operation


@dataclass(frozen=True, slots=True)
class Fail:
    """An invariant is violated: to ERROR with this reason."""

    reason: ErrorReason
    message: str


@dataclass(frozen=True, slots=True)
class Heal:
    """What was lost is there again, whole: out of ERROR."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing before this time."""

    until: datetime


Decision: TypeAlias = Rest | Begin | CarryOn | Complete | Cancel | Fail | Heal | Wait


def look(workspace: Workspace, seen: Observed, now: datetime) -> Workspace:
    """The workspace after a look: conditions, an adopted ctx, the phase, and when the phase moved."""
    if workspace.deleted_at is not None or workspace.of_newer_version:
        return workspace
    looked = _blocked(apply_observation(workspace, seen, now), now)
    phase = phase_of(looked)
    return looked if phase is looked.phase else replace(looked, phase=phase, phase_changed_at=now)


def _blocked(workspace: Workspace, now: datetime) -> Workspace:
    """Told of what it waits for, and no longer once that is there again. What an action waits for is told by the action."""
    unseen = blocked_by_unseen(workspace, now) if workspace.error_reason is None else None
    if unseen is None and workspace.operation is not Operation.NONE:
        return workspace
    return workspace if unseen == workspace.blocked else replace(workspace, blocked=unseen)


def decide(workspace: Workspace, now: datetime, *, was: Phase) -> Decision:
    """The next step for a workspace as `look` left it; `was` is the phase before that look."""
    if workspace.deleted_at is not None or workspace.of_newer_version:
        return Rest()
    if is_found_again(workspace):
        return Heal()
    judged_as = replace(workspace, phase=was)  # what a recovery is told by
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
    """Whether something this operation must know before it touches anything could not be observed."""
    return any(_cannot_tell(workspace, name) for name in WORK[operation].needs)


def _cannot_tell(workspace: Workspace, name: str) -> bool:
    condition: Condition = getattr(workspace.conditions, name)
    if name == "container_ready":  # that it runs is enough; whether it answers is no matter here
        return instance_runs(condition) is None
    return condition.is_unknown


def _towards(workspace: Workspace, level: Phase, was: Phase) -> Decision:
    edge = next_edge(workspace, level)
    if edge is None or _blind_for(workspace, edge.operation):
        return Rest()
    return Begin(edge.operation, again=edge.operation is Operation.STARTING and was is Phase.RUNNING)
