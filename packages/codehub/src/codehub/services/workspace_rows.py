"""How services read, lock and record a workspace inside a transaction."""

from __future__ import annotations

from codehub.adapters.postgres import timeline, workspaces
from codehub.adapters.postgres.pool import Transaction
from codehub.domain.audit import AuditKind
from codehub.domain.errors import Conflict, Denied, WorkspaceNotFound
from codehub.domain.ids import is_id
from codehub.domain.model import Workspace, WorkspaceWithOwner
from codehub.services.audit import note
from codehub.services.principal import Clock, Principal

# Timeline entries that only administrators cause.
_AUDITED = {
    "recover": AuditKind.WORKSPACE_RECOVERED,
    "undelete": AuditKind.WORKSPACE_UNDELETED,
    "transferred": AuditKind.WORKSPACE_TRANSFERRED,
}


def checked_id(workspace_id: str) -> str:
    """Raise for anything that is not a valid id, so that it never reaches the database."""
    if not is_id(workspace_id):
        raise WorkspaceNotFound("there is no such workspace")
    return workspace_id


async def visible(tx: Transaction, who: Principal, workspace_id: str) -> WorkspaceWithOwner:
    """Return the workspace. Raises if it is gone or belongs to another user."""
    found = await workspaces.get(tx, checked_id(workspace_id))
    if found is None or found.workspace.deleted_at is not None:
        raise WorkspaceNotFound("there is no such workspace")
    if found.workspace.owner_user_id != who.user_id and not who.is_admin:
        raise Denied("this workspace belongs to someone else")
    return found


async def locked(tx: Transaction, workspace_id: str) -> Workspace:
    workspace = await workspaces.lock(tx, workspace_id)
    if workspace is None or workspace.deleted_at is not None:
        raise WorkspaceNotFound("there is no such workspace")
    if workspace.of_newer_version:
        raise Conflict("a newer CodeHub works on this workspace: finish the upgrade, then try again")
    return workspace


async def locked_of_owner(tx: Transaction, workspace_id: str, owner_user_id: str) -> Workspace:
    """Lock a workspace for what only its owner may do, and which a transfer takes back."""
    workspace = await locked(tx, workspace_id)
    if workspace.owner_user_id != owner_user_id:
        raise Denied("this workspace has another owner now")
    return workspace


async def reload(tx: Transaction, workspace_id: str) -> WorkspaceWithOwner:
    found = await workspaces.get(tx, workspace_id)
    assert found is not None
    return found


async def record(tx: Transaction, clock: Clock, workspace_id: str, who: Principal, kind: str, message: str) -> None:
    """Add a timeline entry. Also audit what only administrators do, and what they do to other users' workspaces."""
    now = clock()
    await timeline.record(tx, workspace_id, at=now, kind=kind, message=message, actor=who.username)
    if not who.is_admin:  # the owner: other users without administrator rights cannot change anything
        return
    event = _AUDITED.get(kind, AuditKind.WORKSPACE_CHANGED)
    found = await workspaces.get(tx, workspace_id)
    if found is None or (event is AuditKind.WORKSPACE_CHANGED and found.workspace.owner_user_id == who.user_id):
        return
    name = found.workspace.name
    detail = {"change": kind, "message": message, "owner": found.owner}
    await note(tx, event, now, who, workspace_id=workspace_id, target=name, detail=detail)
