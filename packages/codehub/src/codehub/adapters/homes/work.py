"""Runs long blocking work on separate threads, so that a ten-minute archive never delays a short observation.

A cancelled caller waits until the work has noticed and cleaned up: cancellation leaves nothing behind.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from enum import Enum
from typing import Final, TypeVar

from codehub.ports.homes import ARCHIVES_AT_ONCE, RESTORES_AT_ONCE

T = TypeVar("T")


class Kind(Enum):
    """Each kind of work has its own threads.

    Nobody waits for archives or removals of others to create or to open a workspace.
    """

    ARCHIVE = "archive"
    RESTORE = "restore"
    REMOVE = "remove"
    OTHER = "other"


_THREADS: Final = {
    Kind.ARCHIVE: ARCHIVES_AT_ONCE,
    Kind.RESTORE: RESTORES_AT_ONCE,
    Kind.REMOVE: ARCHIVES_AT_ONCE,
    Kind.OTHER: 4,
}


class Workers:
    """Limits how many transfers run at once, and with them their memory."""

    def __init__(self) -> None:
        self._pools = {
            kind: ThreadPoolExecutor(most, thread_name_prefix=f"codehub-home-{kind.value}")
            for kind, most in _THREADS.items()
        }

    async def run(self, work: Callable[[threading.Event], T], kind: Kind = Kind.OTHER) -> T:
        """Run `work` in a thread. It gets an event that is set when the caller is cancelled."""
        cancelled = threading.Event()
        future = asyncio.get_running_loop().run_in_executor(self._pools[kind], work, cancelled)
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            cancelled.set()
            await _ended(future)
            raise

    def close(self) -> None:
        for pool in self._pools.values():
            pool.shutdown(wait=True, cancel_futures=True)


async def _ended(future: asyncio.Future[T]) -> None:
    while not future.done():
        try:
            await asyncio.wait([future])
        except asyncio.CancelledError:  # cancelled twice; the work is already ending
            continue
    if not future.cancelled():
        future.exception()
