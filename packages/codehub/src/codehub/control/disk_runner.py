"""The Disk Runner: measures how large homes are, one at a time. The rule is `domain.disk`."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import structlog

from codehub.control.deps import DiskSettings
from codehub.control.guarded_backends import GuardedBackends
from codehub.control.heartbeat import Heartbeat
from codehub.control.observe import home_key
from codehub.domain.errors import CodeHubError
from codehub.domain.model import Workspace
from codehub.ports.clock import Clock
from codehub.ports.control_store import DiskStore
from codehub.ports.leadership import Lease

_log = structlog.get_logger()


class DiskRunner:
    def __init__(
        self,
        store: DiskStore,
        backends: GuardedBackends,
        lease: Lease,
        clock: Clock,
        settings: DiskSettings,
        heartbeat: Heartbeat,
    ) -> None:
        self._store = store
        self._backends = backends
        self._lease = lease
        self._clock = clock
        self._settings = settings
        self._heartbeat = heartbeat

    async def run(self) -> None:
        while True:
            async with self._heartbeat.tick():
                await self.tick()
            await asyncio.sleep(self._settings.interval_s)

    async def tick(self) -> None:
        every = timedelta(seconds=self._settings.every_s)
        for workspace in await self._store.to_measure(self._clock.now(), every, self._settings.per_tick):
            used = await self._measure(workspace)
            await self._store.note_disk(self._lease.epoch, workspace, used, self._clock.now())
            self._heartbeat.beat()

    async def _measure(self, workspace: Workspace) -> int | None:
        """After a failure the last known value stays, and the next attempt waits like any other."""
        key = home_key(workspace)
        try:
            async with asyncio.timeout(self._settings.timeout_s):
                return await self._backends.with_homes(workspace.storage_backend, lambda homes: homes.size(key))
        except TimeoutError:
            return None
        except CodeHubError as error:
            _log.debug("was not measured", workspace_id=workspace.id, error=str(error))
            return workspace.disk_bytes
        except Exception:  # noqa: BLE001 - the workspace chooses what is measured, and must not end the term by it
            _log.exception("measuring failed", workspace_id=workspace.id)
            return workspace.disk_bytes
