"""The backends of one workspace, as its operations use them. Each call includes the circuit breaker and retries.

Knows which backend a workspace uses and how often a call is retried. Knows nothing of operations.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, TypeVar

from codehub.control.guarded_backends import GuardedBackends
from codehub.control.observe import home_key
from codehub.domain.errors import BackendDown, OutOfSpace, Transient
from codehub.domain.model import HomeCtx, Workspace
from codehub.domain.profiles import AppProfile
from codehub.ports.fence import Fence, Report
from codehub.ports.homes import ArchiveReceipt, HomeKey, Homes, HomeStatus
from codehub.ports.instances import Instances, InstanceSpec, InstanceStatus, Mount

T = TypeVar("T")

# Transient faults are retried at once, with jitter, in addition to the controller's retries.
_TRIES: Final = 3
_PAUSE_S: Final = 0.2


@dataclass(frozen=True, slots=True)
class WorkspaceBackends:
    """`fence` is checked by the backends right before every irreversible step."""

    backends: GuardedBackends
    workspace: Workspace
    fence: Fence
    random: Callable[[], float]

    @property
    def home(self) -> HomeKey:
        return home_key(self.workspace)

    # ── the instance ─────────────────────────────────────────────────────────────────────────────────────────────

    async def instance_status(self) -> InstanceStatus:
        return await self._instances(lambda instances: instances.status(self.workspace.id))

    async def probe(self, profile: AppProfile) -> bool:
        return await self._instances(lambda instances: instances.probe(self.workspace.id, profile))

    async def start_instance(self, spec: InstanceSpec, report: Report, *, replace: bool) -> None:
        await self._retry(
            lambda: self._instances(lambda instances: instances.start(spec, report, self.fence, replace=replace))
        )

    async def stop_instance(self) -> None:
        await self._retry(lambda: self._instances(lambda instances: instances.stop(self.workspace.id, self.fence)))

    async def delete_instance(self) -> None:
        await self._retry(lambda: self._instances(lambda instances: instances.delete(self.workspace.id, self.fence)))

    # ── the home ─────────────────────────────────────────────────────────────────────────────────────────────────

    def mount(self) -> Mount:
        return self.backends.home_backend(self.workspace.storage_backend).mount(self.home)

    async def home_status(self) -> HomeStatus:
        return await self._homes(lambda homes: homes.status(self.home))

    async def limit_home(self, limit: int | None) -> None:
        await self._homes(lambda homes: homes.limit(self.home, limit))

    async def provision(self, incarnation: str) -> HomeCtx:
        return await self._retry(
            lambda: self._homes(lambda homes: homes.provision(self.home, incarnation, self.fence))
        )

    async def deprovision(self, ctx: HomeCtx) -> None:
        await self._retry(lambda: self._homes(lambda homes: homes.deprovision(self.home, ctx, self.fence)))

    async def purge(self) -> None:
        await self._retry(lambda: self._homes(lambda homes: homes.purge(self.home, self.fence)))

    async def sweep(self) -> None:
        await self._homes(lambda homes: homes.sweep(self.home, self.fence))

    # ── between the home and the archive store ───────────────────────────────────────────────────────────────────

    async def archive(self, ctx: HomeCtx, op_id: str, report: Report) -> ArchiveReceipt:
        return await self._retry(
            lambda: self._both(lambda homes: homes.archive(self.home, ctx, op_id, report, self.fence))
        )

    async def archive_empty(self, op_id: str) -> ArchiveReceipt:
        return await self._retry(lambda: self._both(lambda homes: homes.archive_empty(self.home, op_id, self.fence)))

    async def restore(self, archive_key: str, incarnation: str, report: Report, sha256: str | None) -> HomeCtx:
        async def restored(homes: Homes) -> HomeCtx:
            return await homes.restore(self.home, archive_key, incarnation, report, self.fence, sha256)

        return await self._retry(lambda: self._both(restored))

    async def _instances(self, call: Callable[[Instances], Awaitable[T]]) -> T:
        return await self.backends.with_instances(self.workspace.instance_backend, call)

    async def _homes(self, call: Callable[[Homes], Awaitable[T]]) -> T:
        return await self.backends.with_homes(self.workspace.storage_backend, call)

    async def _both(self, call: Callable[[Homes], Awaitable[T]]) -> T:
        return await self.backends.with_both(self.workspace.storage_backend, call)

    async def _retry(self, call: Callable[[], Awaitable[T]]) -> T:
        """Retry transient faults a few times. A backend that is down is left to the breaker."""
        for tried in range(1, _TRIES):
            try:
                return await call()
            except (BackendDown, OutOfSpace):
                raise
            except Transient:
                await asyncio.sleep(_PAUSE_S * tried * (0.5 + self.random()))
        return await call()
