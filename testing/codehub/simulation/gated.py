"""Leadership through one process's faults: a frozen process renews nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from codehub.domain.errors import Deposed
from codehub.ports.clock import Clock
from codehub.ports.leadership import Lease
from testing.codehub.memory.leadership import PING_EVERY_S, TERM_S, MemoryElection, MemoryLease
from testing.codehub.simulation.faults import Process


class GatedLease:
    def __init__(self, inner: MemoryLease, process: Process, clock: Clock) -> None:
        self._inner, self._process, self._clock = inner, process, clock
        self.epoch, self.holder_id = inner.epoch, inner.holder_id

    def fence(self) -> None:
        self._inner.fence()

    async def hold(self) -> None:
        while True:
            await asyncio.sleep(PING_EVERY_S)
            await self._process.reach()
            self.fence()
            sent = self._clock.monotonic()
            if not self._inner.lock.confirm(self._inner):
                self._inner.deadline = float("-inf")
                raise Deposed("the lock is another's")
            self._inner.deadline = sent + TERM_S


class GatedElection:
    def __init__(self, inner: MemoryElection, process: Process, clock: Clock) -> None:
        self._inner, self._process, self._clock = inner, process, clock

    @asynccontextmanager
    async def campaign(self, holder_id: str) -> AsyncIterator[Lease]:
        await self._process.reach()
        async with self._inner.campaign(holder_id) as lease:
            self._lease = lease
            await self._process.reach()
            yield GatedLease(lease, self._process, self._clock)
