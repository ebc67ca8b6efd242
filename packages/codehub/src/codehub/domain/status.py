"""A workspace's one-word status, derived for users and scripts and never stored."""

from __future__ import annotations

from codehub.domain.model import DesiredState, Operation, Phase, Status, Workspace


def status_of(workspace: Workspace) -> Status:
    if workspace.deleted_at is not None:
        return Status.DELETED
    if workspace.desired_state is DesiredState.DELETED:
        return Status.DELETING
    if workspace.phase is Phase.ERROR:
        return Status.ERROR
    if workspace.desired_state is DesiredState.RUNNING:
        return Status.RUNNING if workspace.phase is Phase.RUNNING else Status.PROVISIONING
    if workspace.phase is Phase.RUNNING or workspace.operation is Operation.STOPPING:
        return Status.STOPPING
    return Status.CREATED if workspace.last_access_at is None else Status.STOPPED
