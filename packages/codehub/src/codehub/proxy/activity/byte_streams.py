"""Detects activity in a byte stream whose protocol is opaque (SSH).

Typing, saving and copying send a noticeable amount of data per minute; the keep-alives of SSH and of IDEs over it do not.
"""

from __future__ import annotations

from typing import Final

from codehub.proxy.activity.buffer import Activity
from codehub.proxy.coarse_clock import CoarseClock

WINDOW_S: Final = 60.0
# OpenSSH's ServerAliveInterval of 15 s causes some 350 bytes a minute, VS Code's keep-alive over it some 700.
WORK_BYTES: Final = 1024


class ByteRate:
    """Measures the data that a client sends."""

    __slots__ = ("_activity", "_begun", "_clock", "_count")

    at_boundary = True

    def __init__(self, activity: Activity, clock: CoarseClock) -> None:
        self._activity = activity
        self._clock = clock
        self._begun = clock.now
        self._count = 0

    def feed(self, data: bytes) -> int:
        self.count(len(data))
        return 0

    def count(self, size: int) -> None:
        now = self._clock.now
        if now - self._begun > WINDOW_S:
            self._begun = now
            self._count = 0
        self._count += size
        if self._count > WORK_BYTES and now >= self._activity.quiet_at:
            self._activity.touch()
