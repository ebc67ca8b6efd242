"""The Schedule Runner: workspaces that start and stop at times of the day. The rule is `domain.follow_schedule`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

import structlog

from codehub.control.deps import ScheduleSettings
from codehub.control.heartbeat import Heartbeat
from codehub.ports.clock import Clock
from codehub.ports.control_store import ScheduleStore
from codehub.ports.leadership import Lease

_log = structlog.get_logger()


class ScheduleRunner:
    def __init__(
        self,
        store: ScheduleStore,
        wake: Callable[[Iterable[str]], None],
        lease: Lease,
        clock: Clock,
        settings: ScheduleSettings,
        heartbeat: Heartbeat,
    ) -> None:
        self._store = store
        self._wake = wake
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
        """Everything that was due since the last tick, in one transaction that also says until when that was."""
        changed = await self._store.follow_schedules(self._lease.epoch, self._clock.now(), self._settings.limits)
        if changed:
            _log.info("started or stopped by their schedules", count=len(changed))
            self._wake(changed)
