"""What only administrators do with workspaces: recover them from errors, undelete them, and give them another owner."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from codehub.adapters.postgres import timeline, users, workspaces
from codehub.adapters.postgres.pool import Database, Transaction
from codehub.domain.actions import NEEDS_ADMIN, Action, check_allowed, may_have_instance, stop_target
from codehub.domain.errors import BackendDown, Conflict, Invalid, WorkspaceNotFound
from codehub.domain.history import Generation
from codehub.domain.ids import time_of
from codehub.domain.model import DesiredState, Phase, Workspace, WorkspaceWithOwner
from codehub.ports.archives import ArchiveReceipts
from codehub.services import workspace_limit, workspace_names
from codehub.services.principal import Clock, Principal
from codehub.services.workspace_rows import checked_id, locked, record, reload, visible


@dataclass(frozen=True, slots=True)
class Recovery:
    """`chosen`: an archive was selected. `archive_key`: which one; None is an empty home."""

    chosen: bool = False
    archive_key: str | None = None


@dataclass(frozen=True, slots=True)
class WorkspaceAdmin:
    database: Database
    archives: ArchiveReceipts | None
    clock: Clock
    max_workspaces: int = 0  # of one user; 0: no limit

    async def recover(self, who: Principal, workspace_id: str, recovery: Recovery) -> WorkspaceWithOwner:
        who.must_be_admin()
        # Queried before the transaction, so that no connection is held during a call to the store.
        in_store = await self.archives_in_store(checked_id(workspace_id))
        async with self.database.transaction() as tx:
            await visible(tx, who, workspace_id)
            workspace = await locked(tx, workspace_id)
            check_allowed(Action.RECOVER, workspace)
            if workspace.error_reason in NEEDS_ADMIN:
                outcome = await self._recover_data(tx, workspace, recovery, in_store)
            elif recovery.chosen:
                raise Conflict(
                    f"archive_key: only after {' or '.join(sorted(NEEDS_ADMIN))}, not after {workspace.error_reason}"
                )
            else:
                await workspaces.reset_error(tx, workspace_id, self.clock())
                outcome = "recovered"
            reason = workspace.error_reason or "ERROR"
            await record(tx, self.clock, workspace_id, who, "recover", f"{outcome} after {reason}")
            return await reload(tx, workspace_id)

    async def undelete(self, who: Principal, workspace_id: str) -> WorkspaceWithOwner:
        who.must_be_admin()
        async with self.database.transaction() as tx:
            seen = await workspaces.get(tx, checked_id(workspace_id))
            if seen is not None:
                await users.lock(tx, seen.workspace.owner_user_id)
            workspace = await workspaces.lock(tx, workspace_id)
            if workspace is None or seen is None:
                raise WorkspaceNotFound("there is no such workspace")
            check_allowed(Action.UNDELETE, workspace)
            await workspace_limit.check(tx, who, workspace.owner_user_id, seen.owner, self.max_workspaces)
            await workspaces.undelete(tx, workspace_id, self.clock())
            await self._give_free_name(tx, who, workspace, workspace.owner_user_id)
            await record(tx, self.clock, workspace_id, who, "undelete", "undeleted")
            return await reload(tx, workspace_id)

    async def transfer(self, who: Principal, workspace_id: str, username: str) -> WorkspaceWithOwner:
        """Transfer to another owner, as an administrator. One that runs is only stopped, and Conflict is raised.

        Otherwise the new owner could read the previous owner's secrets in the running instance.
        """
        who.must_be_admin()
        async with self.database.transaction() as tx:
            await visible(tx, who, workspace_id)
            known = await users.credentials(tx, username)
            if known is None or known.user.disabled_at is not None:
                raise Invalid(f"username: there is no enabled user {username!r}")
            await users.lock(tx, known.user.id)
            workspace = await locked(tx, workspace_id)
            if workspace.desired_state is DesiredState.DELETED:
                raise Conflict("the workspace is being deleted")
            moves = workspace.owner_user_id != known.user.id
            if moves:
                await workspace_limit.check(tx, who, known.user.id, username, self.max_workspaces)
            stops = moves and may_have_instance(workspace)
            if stops:
                await self._request_stop(tx, who, workspace)
            elif moves:
                if workspace.desired_state is DesiredState.RUNNING:
                    await workspaces.set_desired_state(tx, workspace_id, DesiredState.STANDBY, self.clock())
                await workspaces.transfer(tx, workspace_id, known.user.id, self.clock())
                await record(tx, self.clock, workspace_id, who, "transferred", f"transferred to {username}")
                await self._give_free_name(tx, who, workspace, known.user.id)
            found = await reload(tx, workspace_id)
        if stops:
            raise Conflict("the workspace is stopped first: transfer it when it has stopped")
        return found

    async def _request_stop(self, tx: Transaction, who: Principal, workspace: Workspace) -> None:
        if workspace.desired_state is not DesiredState.RUNNING and workspace.phase is not Phase.ERROR:
            return
        recover = workspace.error_reason not in NEEDS_ADMIN
        await workspaces.set_desired_state(tx, workspace.id, stop_target(workspace), self.clock(), recover=recover)
        await record(tx, self.clock, workspace.id, who, "stop", "stop requested")

    async def archives_in_store(self, workspace_id: str) -> list[Generation]:
        """Return all complete archives of this workspace in the store, recorded or not.

        Empty if the store does not answer.
        """
        if self.archives is None:
            return []
        try:
            receipts = await self.archives.receipts(workspace_id)
        except BackendDown:
            return []
        return [
            Generation(one.archive_key, one.op_id, time_of(one.op_id) or self.clock(), one.bytes, one.sha256)
            for one in receipts
        ]

    async def _recover_data(
        self, tx: Transaction, workspace: Workspace, recovery: Recovery, in_store: Sequence[Generation]
    ) -> str:
        await timeline.adopt(tx, workspace.id, in_store)
        kept = [generation.archive_key for generation in await timeline.generations(tx, workspace.id)]
        if not recovery.chosen:
            choices = ", ".join(kept) or "none is kept"
            raise Invalid(f"archive_key: name one of the kept archives ({choices}), or null for an empty home")
        if recovery.archive_key is not None and recovery.archive_key not in kept:
            raise Invalid(f"archive_key: not one of the kept archives ({', '.join(kept) or 'none is kept'})")
        await workspaces.recover_from_archive(tx, workspace.id, recovery.archive_key, self.clock())
        return f"recovered from {recovery.archive_key or 'an empty home'}"

    async def _give_free_name(self, tx: Transaction, who: Principal, workspace: Workspace, owner_id: str) -> None:
        """Rename a workspace that comes to an owner who uses its name already."""
        name = await workspace_names.free(tx, owner_id, workspace.name, but=workspace.id)
        if name != workspace.name:
            await workspaces.rename(tx, workspace.id, name)
            await record(
                tx, self.clock, workspace.id, who, "edited", f"renamed to {name}: {workspace.name} was in use"
            )
