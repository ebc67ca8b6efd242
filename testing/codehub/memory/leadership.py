"""Leadership in memory: a lock, an epoch, and a term that expires unless it is confirmed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from codehub.domain.errors import Deposed
from codehub.ports.clock import Clock
from testing.codehub.memory.database import MemoryDatabase

PING_EVERY_S = 1.0
TERM_S = 4.0
IDLE_TIMEOUT_S = 5.0


@dataclass(slots=True, eq=False)
class MemoryLease:
    epoch: int
    holder_id: str
    clock: Clock
    deadline: float
    lock: MemoryElection

    def fence(self) -> None:
        if self.clock.monotonic() >= self.deadline:
            raise Deposed(f"the term of epoch {self.epoch} is over")

    async def hold(self) -> None:
        while True:
            await asyncio.sleep(PING_EVERY_S)
            self.fence()
            sent = self.clock.monotonic()
            if not self.lock.confirm(self):
                self.deadline = float("-inf")
                raise Deposed("the lock is another's")
            self.deadline = sent + TERM_S


class MemoryElection:
    """Implements ports.leadership.Election for coordinators in one loop. A holder that does not confirm loses the lock."""

    def __init__(self, database: MemoryDatabase, clock: Clock) -> None:
        self._database = database
        self._clock = clock
        self._holder: MemoryLease | None = None
        self._confirmed_at = 0.0

    @property
    def holder(self) -> MemoryLease | None:
        return self._holder

    def confirm(self, lease: MemoryLease) -> bool:
        if self._holder is not lease:
            return False
        self._confirmed_at = self._clock.monotonic()
        return True

    def free(self) -> None:
        """Release the lock, as the server does for a lost connection."""
        self._holder = None

    def _is_held(self) -> bool:
        return self._holder is not None and self._clock.monotonic() - self._confirmed_at < IDLE_TIMEOUT_S

    @asynccontextmanager
    async def campaign(self, holder_id: str) -> AsyncIterator[MemoryLease]:
        while self._is_held():
            await asyncio.sleep(1.0)
        self._database.epoch += 1
        now = self._clock.monotonic()
        lease = MemoryLease(self._database.epoch, holder_id, self._clock, now + TERM_S, self)
        self._holder, self._confirmed_at = lease, now
        try:
            yield lease
        finally:
            lease.deadline = float("-inf")
            if self._holder is lease:
                self._holder = None
