"""Bounds the time that one workspace's traffic takes to read.

Chunks and WebSocket frames are read one by one, and can be as small as two bytes. A workspace, or its user, that sends
hundreds of thousands of them would keep the event loop busy and delay everybody's requests.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

# Reading a chunk or a frame takes about a microsecond: a workspace gets a twentieth of the event loop.
PIECES_PER_S: Final = 50_000
# Data with fewer pieces than this costs about as much as a request, and is not counted.
FEW_PIECES: Final = 64
SMALL_READ: Final = 1024  # keystrokes and keep-alives do not wait for large data
# But they wait behind more than this, because they could be sent one by one and hold as many pieces as large data.
SMALL_READS_WAIT_S: Final = 1.0


class ScanBudget:
    """What the connections of one workspace may read. `free_at` is the loop's time at which it is no longer used up."""

    __slots__ = ("free_at",)

    def __init__(self) -> None:
        self.free_at = 0.0

    def charge(self, pieces: int, now: float) -> None:
        self.free_at = max(self.free_at, now) + pieces / PIECES_PER_S


class Pace:
    """Keeps what one connection has received while the budget is used up, and stops reading meanwhile."""

    __slots__ = ("_blocked", "_budget", "_deliver", "_held", "_loop", "_timer", "_transport")

    def __init__(
        self,
        budget: ScanBudget,
        transport: asyncio.Transport,
        deliver: Callable[[bytes], None],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._budget = budget
        self._transport = transport
        self._deliver = deliver
        self._loop = loop
        self._held = b""
        self._timer: asyncio.TimerHandle | None = None
        self._blocked = False  # the other side takes nothing now

    def holds(self, data: bytes) -> bool:
        """Return whether the data has to wait. It is then delivered later, in order."""
        if self._timer is None and not self._held:
            if not self._budget.free_at:
                return False
            wait_s = self._budget.free_at - self._loop.time()
            if wait_s <= (SMALL_READS_WAIT_S if len(data) <= SMALL_READ else 0.0):
                return False
            self._timer = self._loop.call_later(wait_s, self._release)
        self._held += data
        self._transport.pause_reading()
        return True

    def charge(self, pieces: int) -> None:
        if pieces > FEW_PIECES:
            self._budget.charge(pieces, self._loop.time())

    def block(self) -> None:
        self._blocked = True
        self._transport.pause_reading()

    def unblock(self) -> None:
        self._blocked = False
        if self._held:
            self._timer = self._timer or self._loop.call_later(0, self._release)
        elif not self._transport.is_closing():
            self._transport.resume_reading()

    def _release(self) -> None:
        self._timer = None
        if self._transport.is_closing():
            self._held = b""
            return
        if self._blocked:
            return
        wait_s = self._budget.free_at - self._loop.time()
        if wait_s > 0:
            self._timer = self._loop.call_later(wait_s, self._release)
            return
        held, self._held = self._held, b""
        self._transport.resume_reading()
        self._deliver(held)
