"""How long an operation may run without progress. The clock stops while the backend does not answer and restarts with a
new term."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from codehub.domain.errors import Terminal
from codehub.ports.clock import Clock

T = TypeVar("T")


class ProgressDeadlineExceeded(Terminal):
    reason = "Timeout"


class ProgressDeadline:
    """The deadline of one running operation."""

    def __init__(self, clock: Clock, limit_s: float) -> None:
        self._clock = clock
        self._limit_s = limit_s
        self._since = clock.monotonic()

    def renew(self) -> None:
        """Restart the clock: there was progress, or none could be expected. Thread-safe."""
        self._since = self._clock.monotonic()

    @property
    def left_s(self) -> float:
        return self._since + self._limit_s - self._clock.monotonic()

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Cancel the work and raise ProgressDeadlineExceeded after too long without progress."""
        task = asyncio.ensure_future(work)
        try:
            while not task.done():
                if self.left_s <= 0:
                    raise ProgressDeadlineExceeded(f"no progress for {self._limit_s:g} s")
                await asyncio.wait([task], timeout=self.left_s)
            return task.result()
        finally:
            task.cancel()
            # Await the work's clean-up, so that nothing continues in the background. Its own failure no longer matters.
            await asyncio.gather(task, return_exceptions=True)
