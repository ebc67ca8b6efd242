"""The proxy's coarse clock: updated a few times a second, so that reading it on every request makes no system call."""

from __future__ import annotations

from collections.abc import Callable


class CoarseClock:
    """`now` is monotonic, `unix` is wall time; both as of the last tick."""

    __slots__ = ("_monotonic", "_wall", "now", "unix")

    def __init__(self, monotonic: Callable[[], float], wall: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._wall = wall
        self.tick()

    def tick(self) -> None:
        self.now = self._monotonic()
        self.unix = self._wall()
