"""New workspaces from the files of others: a duplicate, and one that continues from the last archive.

The row is the intent; the controller copies the files. The original is only read.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from codehub.adapters.postgres import timeline, users, workspaces
from codehub.adapters.postgres.pool import Database
from codehub.domain.actions import Action, check_allowed
from codehub.domain.continuing import continued
from codehub.domain.duplicate import FromArchive, source_of
from codehub.domain.errors import Denied, Unauthorized
from codehub.domain.limits import RunningLimits
from codehub.domain.model import DesiredState, WorkspaceWithOwner
from codehub.services import workspace_limit, workspace_names
from codehub.services.principal import Clock, Ids, Principal
from codehub.services.workspace_rows import locked, record, reload, visible


@dataclass(frozen=True, slots=True)
class WorkspaceCopies:
    database: Database
    limits: RunningLimits
    clock: Clock
    ids: Ids
    max_workspaces: int = 0  # of one user; 0: no limit

    async def duplicate(self, who: Principal, workspace_id: str, name: str, *, start: bool) -> WorkspaceWithOwner:
        """Create a workspace with this one's files, which is only read. See `domain.duplicate`.

        The row is the intent. A copy of an archived workspace starts from that archive, which the GC then keeps. For a copy
        of a home, the controller creates an archive first.
        """
        who.must_not_be_limited()
        now, copy_id = self.clock(), self.ids()
        async with self.database.transaction() as tx:
            await visible(tx, who, workspace_id)
            if not await users.lock(tx, who.user_id):
                raise Unauthorized("the user is gone")
            await workspace_limit.check(tx, who, who.user_id, who.username, self.max_workspaces)
            await workspace_names.check(tx, who.user_id, name, but=copy_id)
            if start:
                await workspaces.take_running_slot(tx, who.user_id, copy_id, self.limits)
            original = await locked(tx, workspace_id)
            check_allowed(Action.DUPLICATE, original)
            source = source_of(original)
            key = source.archive_key if isinstance(source, FromArchive) else None
            copy = replace(
                original,
                id=copy_id,
                owner_user_id=who.user_id,
                name=name,
                home_store_key=f"users/{who.user_id}/workspaces/{copy_id}/home",
                desired_state=DesiredState.RUNNING if start else DesiredState.ARCHIVED,
                last_access_at=now if start else None,
                created_at=now,
                updated_at=now,
                phase_changed_at=now,
                copy_of=workspace_id,
                archive_key=key,
                template=original.template_next or original.template,
                dev_image=original.dev_image_next or original.dev_image,
            )
            await workspaces.insert(tx, copy)
            if key is not None:
                await timeline.share_archive(tx, workspace_id, copy_id, key)
            await record(tx, self.clock, copy_id, who, "created", f"duplicated {original.name} ({workspace_id})")
            await record(tx, self.clock, workspace_id, who, "duplicated", f"duplicated it as {name} ({copy_id})")
            return await reload(tx, copy_id)

    async def continue_from_archive(self, who: Principal, workspace_id: str) -> WorkspaceWithOwner:
        """Create a workspace from the last archive of one whose node does not answer.

        The old workspace keeps all its data: it is stopped when its node is back, including what was written there since.
        """
        who.must_not_be_limited()
        now, new_id = self.clock(), self.ids()
        async with self.database.transaction() as tx:
            seen = await visible(tx, who, workspace_id)
            if seen.workspace.owner_user_id != who.user_id:
                raise Denied("only its owner continues from its archive")
            await users.lock(tx, who.user_id)
            await workspace_limit.check(tx, who, who.user_id, who.username, self.max_workspaces)
            # The old one no longer wants to run, and leaves its place to the new one.
            await workspaces.take_running_slot(tx, who.user_id, workspace_id, self.limits)
            workspace = await locked(tx, workspace_id)
            check_allowed(Action.CONTINUE_FROM_ARCHIVE, workspace)
            await workspaces.set_desired_state(tx, workspace_id, DesiredState.STANDBY, now)
            copy = continued(workspace, new_id, now)
            name = await workspace_names.free(tx, who.user_id, copy.name, but=new_id)
            await workspaces.insert(tx, replace(copy, name=name))
            if copy.archive_key is not None:
                await timeline.share_archive(tx, workspace_id, new_id, copy.archive_key)
            await record(
                tx, self.clock, workspace_id, who, "continued", f"continued from its last archive as {new_id}"
            )
            await record(tx, self.clock, new_id, who, "created", f"created from the last archive of {workspace.name}")
            return await reload(tx, new_id)
