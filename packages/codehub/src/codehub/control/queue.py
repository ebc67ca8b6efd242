"""A keyed queue: each key waits at most once, has at most one worker, and is requeued if it is added during its work."""

from __future__ import annotations

import asyncio
import heapq
from collections import OrderedDict
from collections.abc import Iterable
from itertools import count


class KeyedQueue:
    def __init__(self) -> None:
        self._waiting: OrderedDict[str, None] = OrderedDict()
        self._working: set[str] = set()
        self._again: set[str] = set()
        self._later: list[tuple[float, int, str]] = []
        self._due: dict[str, float] = {}
        self._numbers = count()
        self._changed = asyncio.Event()

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def working(self) -> frozenset[str]:
        return frozenset(self._working)

    @property
    def delayed(self) -> frozenset[str]:
        """Keys that are scheduled for later."""
        return frozenset(self._due)

    def add(self, key: str) -> None:
        """Queue the key for the next free worker, or for after the current work on it."""
        self._due.pop(key, None)
        if key in self._working:
            self._again.add(key)
        elif key not in self._waiting:
            self._waiting[key] = None
            self._changed.set()

    def add_all(self, keys: Iterable[str]) -> None:
        for key in keys:
            self.add(key)

    def add_after(self, key: str, delay_s: float) -> None:
        """Queue the key after a delay. An earlier scheduled time is kept."""
        at = asyncio.get_running_loop().time() + delay_s
        if key in self._waiting or key in self._again or self._due.get(key, at + 1) <= at:
            return
        self._due[key] = at
        heapq.heappush(self._later, (at, next(self._numbers), key))
        self._changed.set()

    async def take(self) -> str:
        """The next key. It belongs to this worker until `done`."""
        while True:
            wait_s = self._promote_due()
            if self._waiting:
                key, _ = self._waiting.popitem(last=False)
                self._working.add(key)
                return key
            self._changed.clear()
            try:
                async with asyncio.timeout(wait_s):
                    await self._changed.wait()
            except TimeoutError:
                continue

    def done(self, key: str) -> None:
        self._working.discard(key)
        if key in self._again:
            self._again.discard(key)
            self.add(key)

    def _promote_due(self) -> float | None:
        """Queue the keys that are due. Returns the time until the next one, if any."""
        now = asyncio.get_running_loop().time()
        while self._later:
            at, _, key = self._later[0]
            if self._due.get(key) != at:  # rescheduled to an earlier time
                heapq.heappop(self._later)
            elif at <= now:
                heapq.heappop(self._later)
                self.add(key)
            else:
                return at - now
        return None
