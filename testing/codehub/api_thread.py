"""The API on a listener in a separate thread, for synchronous callers (schemathesis)."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from codehub.adapters.postgres.pool import Database
from testing.codehub.api import listening, running_api


@dataclass
class _Shared:
    address: str = ""
    error: BaseException | None = None
    loop: asyncio.AbstractEventLoop | None = None
    leave: asyncio.Event | None = None


@contextmanager
def api_in_a_thread(database_url: str, **given: Any) -> Iterator[str]:
    """Yield the address while the API runs."""
    shared = _Shared()
    ready = threading.Event()

    async def run() -> None:
        shared.loop = asyncio.get_running_loop()
        shared.leave = asyncio.Event()
        async with Database(database_url, timeout_s=120) as database, running_api(database, **given) as api:
            async with listening(api) as address:
                shared.address = address
                ready.set()
                await shared.leave.wait()

    def body() -> None:
        try:
            asyncio.run(run())
        except BaseException as error:
            shared.error = error
            raise
        finally:
            ready.set()

    thread = threading.Thread(target=body, name="api")
    thread.start()
    try:
        ready.wait(90)
        assert shared.address, shared.error
        yield shared.address
    finally:
        if shared.loop is not None and shared.leave is not None and thread.is_alive():
            shared.loop.call_soon_threadsafe(shared.leave.set)
        thread.join(90)
