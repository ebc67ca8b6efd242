"""How long an operation may go on without progress. The clock stands still while the backend does not answer, and begins
again with a new term."""

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
    """One per operation under way."""

    def __init__(self, clock: Clock, limit_s: float) -> None:
        self._clock = clock
        self._limit_s = limit_s
        self._since = clock.monotonic()

    def renew(self) -> None:
        """There was progress, or nothing could be expected. From any thread."""
        self._since = self._clock.monotonic()

    @property
    def left_s(self) -> float:
        return self._since + self._limit_s - self._clock.monotonic()

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Cancels the work and raises ProgressDeadlineExceeded when there was no progress for too long."""
        task = asyncio.ensure_future(work)
        try:
            while not task.done():
                if self.left_s <= 0:
                    raise ProgressDeadlineExceeded(f"no progress for {self._limit_s:g} s")
                await asyncio.wait([task], timeout=self.left_s)
            return task.result()
        finally:
            task.cancel()
            # The work's own clean-up is awaited, so that nothing of it goes on unseen; its failure was told, or is moot.
            await asyncio.gather(task, return_exceptions=True)
