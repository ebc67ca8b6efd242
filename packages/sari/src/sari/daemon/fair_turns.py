"""Which call may use a thread next, so that no client keeps another waiting. Runs in the event loop."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class FairTurns:
    """A number of turns that clients share.

    A client has at most `each` turns, and the last `reserved` ones are for clients that have none. Of the clients that
    wait, the one with the fewest turns is next; among equals, the one that waited longest.
    """

    def __init__(self, turns: int, each: int, reserved: int) -> None:
        self._turns = turns
        self._each = each
        self._reserved = reserved
        self._taken: Counter[str] = Counter()
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}

    @asynccontextmanager
    async def turn(self, client: str) -> AsyncIterator[None]:
        """Hold a turn of a client."""
        granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(client, deque()).append(granted)
        self._grant()
        try:
            await granted
        except asyncio.CancelledError:
            if granted.done() and not granted.cancelled():
                self._release(client)
            else:
                self._forget(client, granted)
            raise
        try:
            yield
        finally:
            self._release(client)

    def _grant(self) -> None:
        while (client := self._next()) is not None:
            granted = self._waiting[client][0]
            self._forget(client, granted)
            if client in self._waiting:
                # Behind those that wait with as many turns.
                self._waiting[client] = self._waiting.pop(client)
            if not granted.cancelled():
                self._taken[client] += 1
                granted.set_result(None)

    def _next(self) -> str | None:
        free = self._turns - self._taken.total()
        able = [
            client
            for client in self._waiting
            if free > (self._reserved if self._taken[client] else 0) and self._taken[client] < self._each
        ]
        return min(able, key=lambda client: self._taken[client], default=None)

    def _forget(self, client: str, granted: asyncio.Future[None]) -> None:
        waiting = self._waiting[client]
        waiting.remove(granted)
        if not waiting:
            del self._waiting[client]

    def _release(self, client: str) -> None:
        self._taken[client] -= 1
        if not self._taken[client]:
            del self._taken[client]
        self._grant()
