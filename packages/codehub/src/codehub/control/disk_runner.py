"""The Disk Runner: measures how large homes are, one at a time. The rule is `domain.disk`."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta

import structlog

from codehub.control.deps import DiskSettings
from codehub.control.guarded_backends import GuardedBackends
from codehub.control.heartbeat import Heartbeat
from codehub.control.observe import home_key
from codehub.domain.disk import is_to_measure, pause_after
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
        # Homes that are left alone for longer than the shortest pause, and until when. A new term learns it again.
        self._not_before: dict[str, datetime] = {}

    async def run(self) -> None:
        while True:
            async with self._heartbeat.tick():
                await self.tick()
            await asyncio.sleep(self._settings.interval_s)

    async def tick(self) -> None:
        now, began = self._clock.now(), self._clock.monotonic()
        shortest, longest = (timedelta(seconds=s) for s in (self._settings.shortest_s, self._settings.longest_s))
        self._not_before = {id_: at for id_, at in self._not_before.items() if at > now}
        due = await self._store.to_measure(now, shortest, self._settings.per_tick, without=self._not_before.keys())
        for workspace in due:
            started = self._clock.monotonic()
            if started - began > self._settings.early_s and not is_to_measure(workspace, now, longest):
                break  # those that wait longest came first
            used = await self._measure(workspace)
            took = timedelta(seconds=self._clock.monotonic() - started)
            pause = longest if used is None else pause_after(took, shortest, longest)
            checked = self._clock.now()
            if pause > shortest:
                self._not_before[workspace.id] = checked + pause
            await self._store.note_disk(self._lease.epoch, workspace, used, checked)
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
