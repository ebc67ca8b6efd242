"""Hints in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from fnmatch import fnmatchcase

from codehub.domain.errors import BackendDown


class MemoryBus:
    """Implements ports.bus.Bus for tasks of one loop. `cut` breaks every subscription, `away` makes it unavailable."""

    def __init__(self) -> None:
        self.away = False
        self._subscriptions: list[tuple[tuple[str, ...], asyncio.Queue[tuple[str, str] | None]]] = []

    async def publish(self, channel: str, payload: str) -> None:
        self._answer()
        for channels, queue in self._subscriptions:
            if any(fnmatchcase(channel, wanted) for wanted in channels):
                queue.put_nowait((channel, payload))

    async def subscribe(self, *channels: str) -> AsyncIterator[tuple[str, str]]:
        self._answer()
        queue: asyncio.Queue[tuple[str, str] | None] = asyncio.Queue()
        entry = (channels, queue)
        self._subscriptions.append(entry)
        try:
            while (message := await queue.get()) is not None:
                yield message
            raise BackendDown("the bus broke the subscription")
        finally:
            self._subscriptions.remove(entry)

    def cut(self) -> None:
        for _, queue in self._subscriptions:
            queue.put_nowait(None)

    def _answer(self) -> None:
        if self.away:
            raise BackendDown("the bus is away")
