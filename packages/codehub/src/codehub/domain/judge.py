"""The phase of a workspace, judged from conditions, intent and record alone (docs/states.md)."""

from __future__ import annotations

from codehub.domain.model import DesiredState, ErrorReason, Phase, Workspace
from codehub.domain.observed import instance_runs, is_recovering

# How high a level is: plans only ever go from one of these to the next.
LEVELS = {Phase.PENDING: 0, Phase.ARCHIVED: 5, Phase.STANDBY: 10, Phase.RUNNING: 20}

_VIOLATIONS = {reason.value: reason for reason in ErrorReason}


def violation_of(workspace: Workspace) -> ErrorReason | None:
    """The invariant that is violated, if one is known to be."""
    healthy = workspace.conditions.healthy
    if not healthy.is_false:
        return None
    return _VIOLATIONS.get(healthy.reason, ErrorReason.ACTION_FAILED)


def level_of(workspace: Workspace) -> Phase | None:
    """The level, as if no deletion had been asked; None when a condition that it needs is Unknown."""
    if workspace.error_reason is not None:
        return Phase.ERROR
    violation = violation_of(workspace)
    recovers_by_stopping = violation is ErrorReason.CONTAINER_WITHOUT_VOLUME and is_recovering(workspace)
    if violation is not None and not recovers_by_stopping:
        return Phase.ERROR
    volume, archive = workspace.conditions.volume_ready, workspace.conditions.archive_ready
    if volume.is_unknown:
        return None
    if volume.is_true:
        return _with_volume(workspace)
    if workspace.conditions.healthy.is_unknown:
        return None
    if workspace.archive_key is not None:
        # Not healthy would have been said above, were the archive gone; in DELETING a lost one leaves nothing.
        if archive.is_unknown:
            return None
        return Phase.ARCHIVED if archive.is_true else Phase.PENDING
    return Phase.PENDING


def _with_volume(workspace: Workspace) -> Phase | None:
    container = workspace.conditions.container_ready
    runs = instance_runs(container)
    if runs is None:
        return None
    if not runs:
        return Phase.STANDBY
    if container.is_true or workspace.desired_state is not DesiredState.RUNNING:
        return Phase.RUNNING  # an unhealthy one still runs, when something lower is desired
    return Phase.STANDBY if container.is_false else None


def phase_of(workspace: Workspace) -> Phase:
    """What is shown: the level, or the deletion; as it was when the level can't be told."""
    if workspace.deleted_at is not None:
        return Phase.DELETED
    if workspace.desired_state is DesiredState.DELETED:
        return Phase.DELETING
    level = level_of(workspace)
    if level is None:
        return workspace.phase
    if level is Phase.ERROR and workspace.error_reason is None:
        return workspace.phase  # becomes ERROR together with its reason, in one transaction (INV-4)
    return level
