"""Reads a workspace's timeline, its archives, its instance's output and its resource usage.

No database connection is held during a call to a backend.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass

from codehub.adapters.postgres import timeline
from codehub.adapters.postgres.pool import Database
from codehub.domain.errors import UpstreamUnavailable
from codehub.domain.history import Generation, TimelineEntry
from codehub.domain.model import Phase, Workspace
from codehub.ports.instances import Instances
from codehub.services.backend_answers import answered
from codehub.services.principal import Principal
from codehub.services.workspace_admin import WorkspaceAdmin
from codehub.services.workspaces import Workspaces


@dataclass(frozen=True, slots=True)
class Diagnostics:
    database: Database
    workspaces: Workspaces
    workspace_admin: WorkspaceAdmin
    instances: Mapping[str, Instances]

    async def timeline(
        self, who: Principal, workspace_id: str, limit: int, offset: int
    ) -> tuple[list[TimelineEntry], int]:
        await self.workspaces.get(who, workspace_id)
        async with self.database.transaction() as tx:
            return await timeline.page(tx, workspace_id, limit, offset)

    async def archives(self, who: Principal, workspace_id: str) -> list[Generation]:
        """Return the recorded archives and, for a workspace in ERROR, those in the store that no row names."""
        found = await self.workspaces.get(who, workspace_id)
        async with self.database.transaction() as tx:
            kept = await timeline.generations(tx, workspace_id)
        if found.workspace.phase is not Phase.ERROR:
            return kept
        known = {one.archive_key for one in kept}
        more = [
            one for one in await self.workspace_admin.archives_in_store(workspace_id) if one.archive_key not in known
        ]
        return sorted([*kept, *more], key=lambda one: one.committed_at, reverse=True)

    async def logs(
        self, who: Principal, workspace_id: str, *, follow: bool, tail: int | None
    ) -> AsyncIterator[bytes]:
        """Stream the instance's output. A backend that does not answer raises before the first byte."""
        workspace, backend = await self._backend(who, workspace_id)
        await answered(workspace, backend.status(workspace_id))
        return backend.logs(workspace_id, follow=follow, tail=tail)

    async def usage(self, who: Principal, workspace_id: str) -> Mapping[str, float] | None:
        workspace, backend = await self._backend(who, workspace_id)
        return await answered(workspace, backend.usage(workspace_id))

    async def _backend(self, who: Principal, workspace_id: str) -> tuple[Workspace, Instances]:
        found = await self.workspaces.get(who, workspace_id)
        backend = self.instances.get(found.workspace.instance_backend)
        if backend is None:
            raise UpstreamUnavailable(
                f"this API process has no access to the {found.workspace.instance_backend} backend"
            )
        return found.workspace, backend
