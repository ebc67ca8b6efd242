"""An event loop whose time advances only when there is nothing left to do. No file descriptor, no thread, no waiting."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

T = TypeVar("T")

_EPOCH = datetime(2026, 11, 16, tzinfo=UTC)


class Stalled(Exception):
    """Raised if all tasks wait for something that never happens."""


class _Passing:
    """Replaces the selector: advances the time instead of waiting."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def select(self, timeout: float | None) -> list[Any]:
        if timeout is None:
            raise Stalled("nothing is scheduled any more")
        self.now += timeout
        return []

    def close(self) -> None:
        pass


class VirtualLoop(asyncio.BaseEventLoop):
    def __init__(self) -> None:
        super().__init__()
        self._selector = _Passing()

    def time(self) -> float:
        return self._selector.now

    def _process_events(self, event_list: list[Any]) -> None:
        pass

    def _write_to_self(self) -> None:
        pass


class VirtualClock:
    """Implements ports.clock.Clock on the loop's time."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop

    def now(self) -> datetime:
        return _EPOCH + timedelta(seconds=self._loop.time())

    def monotonic(self) -> float:
        return self._loop.time()


def run_virtual(main: Coroutine[Any, Any, T], loop: VirtualLoop) -> T:
    """Run to the end, and leave no task behind."""
    try:
        return loop.run_until_complete(main)
    finally:
        left = asyncio.all_tasks(loop)
        for task in left:
            task.cancel()
        if left:
            loop.run_until_complete(asyncio.wait(left, timeout=1e6))
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()
