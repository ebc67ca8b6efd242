"""A semaphore whose slots go round among those who wait, instead of to whoever asked first (domain/turns.py)."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count

from codehub.domain.turns import next_turn


class FairSlots:
    def __init__(self, most: int) -> None:
        self._free = most
        self._running: Counter[str] = Counter()
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        self._served: dict[str, int] = {}  # only of those who run or wait
        self._numbers = count(1)

    def is_full(self) -> bool:
        return self._free == 0

    @asynccontextmanager
    async def turn(self, holder: str) -> AsyncIterator[None]:
        await self._acquire(holder)
        try:
            yield
        finally:
            self._release(holder)

    async def _acquire(self, holder: str) -> None:
        if self._free:
            self._free -= 1
            self._give(holder)
            return
        waiter = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(holder, deque()).append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                self._release(holder)  # it was given a slot in the same moment
            else:
                self._leave(holder, waiter)
            raise

    def _give(self, holder: str) -> None:
        self._running[holder] += 1
        self._served[holder] = next(self._numbers)

    def _leave(self, holder: str, waiter: asyncio.Future[None]) -> None:
        waiters = self._waiting.get(holder, deque())
        if waiter in waiters:
            waiters.remove(waiter)
            if not waiters:
                del self._waiting[holder]
        self._forget(holder)

    def _forget(self, holder: str) -> None:
        if not self._running[holder]:
            del self._running[holder]
            if holder not in self._waiting:
                self._served.pop(holder, None)

    def _release(self, holder: str) -> None:
        self._running[holder] -= 1
        while (following := next_turn(self._waiting, self._running, self._served)) is not None:
            waiter = self._waiting[following].popleft()
            if not self._waiting[following]:
                del self._waiting[following]
            if not waiter.cancelled():  # or its task is about to notice that it was cancelled
                self._give(following)
                waiter.set_result(None)
                break
        else:
            self._free += 1
        self._forget(holder)
