"""Determines a workspace's phase from its conditions, desired state and record alone (docs/states.md)."""

from __future__ import annotations

from codehub.domain.model import DesiredState, ErrorReason, Phase, Workspace
from codehub.domain.observed import instance_runs, is_recovering

# The height of each level. A plan only moves from one level to the next.
LEVELS = {Phase.PENDING: 0, Phase.ARCHIVED: 5, Phase.STANDBY: 10, Phase.RUNNING: 20}

_VIOLATIONS = {reason.value: reason for reason in ErrorReason}


def violation_of(workspace: Workspace) -> ErrorReason | None:
    """Return the violated invariant if a violation is known."""
    healthy = workspace.conditions.healthy
    if not healthy.is_false:
        return None
    return _VIOLATIONS.get(healthy.reason, ErrorReason.ACTION_FAILED)


def level_of(workspace: Workspace) -> Phase | None:
    """Return the level, ignoring a requested deletion. None if a required condition is Unknown."""
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
        # A missing archive was reported as a violation above; in DELETING, a lost archive leaves nothing.
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
        return Phase.RUNNING  # an unhealthy instance still runs, which matters if a lower level is desired
    return Phase.STANDBY if container.is_false else None


def phase_of(workspace: Workspace) -> Phase:
    """Return the phase to show: the level or the deletion. Keeps the old phase if the level is unknown."""
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
