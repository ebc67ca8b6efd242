"""Runs long blocking work on separate threads, so that a ten-minute archive never delays a short observation.

A cancelled caller waits until the work has noticed and cleaned up: cancellation leaves nothing behind.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


class Workers:
    """Limits how many transfers run at once, and with them their memory."""

    def __init__(self, most: int = 4) -> None:
        self._pool = ThreadPoolExecutor(most, thread_name_prefix="codehub-home")

    async def run(self, work: Callable[[threading.Event], T]) -> T:
        """Run `work` in a thread. It gets an event that is set when the caller is cancelled."""
        cancelled = threading.Event()
        future = asyncio.get_running_loop().run_in_executor(self._pool, work, cancelled)
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            cancelled.set()
            await _ended(future)
            raise

    def close(self) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)


async def _ended(future: asyncio.Future[T]) -> None:
    while not future.done():
        try:
            await asyncio.wait([future])
        except asyncio.CancelledError:  # cancelled twice; the work is already ending
            continue
    if not future.cancelled():
        future.exception()
