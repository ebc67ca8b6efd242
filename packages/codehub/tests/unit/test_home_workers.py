"""Threads for homes: archives and removals under way hold up neither restores nor the creation of a home."""

from __future__ import annotations

import asyncio
import threading

import pytest

from codehub.adapters.homes.work import Kind, Workers
from codehub.ports.homes import ARCHIVES_AT_ONCE


@pytest.mark.parametrize("long", [Kind.ARCHIVE, Kind.REMOVE])
async def test_long_work_leaves_the_other_work_its_threads(long: Kind) -> None:
    workers, go_on, begun = Workers(), threading.Event(), threading.Semaphore(0)

    def work(cancelled: threading.Event) -> None:
        begun.release()
        assert go_on.wait(120)

    running = [asyncio.create_task(workers.run(work, long)) for _ in range(2 * ARCHIVES_AT_ONCE)]
    try:
        for _ in range(ARCHIVES_AT_ONCE):
            assert await asyncio.to_thread(begun.acquire, timeout=120)
        for kind in (Kind.RESTORE, Kind.OTHER):
            assert await asyncio.wait_for(workers.run(lambda cancelled: "done", kind), 120) == "done"
        assert not begun.acquire(blocking=False), "no more of it than allowed"
    finally:
        go_on.set()
        await asyncio.gather(*running)
        workers.close()
