"""The embedded PostgreSQL and Valkey of `up`, used if no servers are configured: supervised, and stopped last."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Protocol

import structlog

from codehub.adapters.embedded.postgres import EmbeddedPostgres
from codehub.adapters.embedded.valkey import EmbeddedValkey
from codehub.cli.stack.backoff import Backoff
from codehub.domain.errors import BackendDown
from codehub.settings import Settings

log = structlog.get_logger()

_POLL_INTERVAL_S = 0.5


class Server(Protocol):
    @property
    def pid(self) -> int | None: ...

    def start(self) -> None: ...

    def stop(self) -> None: ...


@contextlib.asynccontextmanager
async def embedded_servers(settings: Settings, say: Callable[[str], None]) -> AsyncIterator[Settings]:
    """Start and supervise the required servers. Yields settings that point to them."""
    found: dict[str, str] = {}
    async with contextlib.AsyncExitStack() as stack:
        if not settings.database_url:
            postgres = EmbeddedPostgres(settings.data_dir, user=settings.server_user)
            first = not (settings.data_dir / "postgres" / "data").exists()
            say("making the database (first run)" if first else "starting PostgreSQL")
            await stack.enter_async_context(_kept("PostgreSQL", postgres))
            found["database_url"] = postgres.url()
        if not settings.redis_url:
            valkey = EmbeddedValkey(settings.data_dir, user=settings.server_user)
            say("starting Valkey")
            await stack.enter_async_context(_kept("Valkey", valkey))
            found["redis_url"] = valkey.url
        yield settings.model_copy(update=found)


@contextlib.asynccontextmanager
async def _kept(name: str, server: Server) -> AsyncIterator[None]:
    task: asyncio.Task[None] | None = None
    try:
        await _start(server)
        task = asyncio.create_task(keep_serving(name, server), name=name)
        yield
    finally:
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        await asyncio.to_thread(server.stop)


async def keep_serving(name: str, server: Server) -> None:
    """Restart the server whenever it ends, until cancelled. No start is then in progress."""
    backoff = Backoff(asyncio.get_running_loop().time)
    while True:
        if server.pid is not None:
            await asyncio.sleep(_POLL_INTERVAL_S)
            continue
        after_s = backoff.ended()
        log.error("a server ended and is started again", server=name, after_s=after_s)
        await asyncio.sleep(after_s)
        try:
            await _start(server)
        except BackendDown as error:
            log.error("a server does not start", server=name, error=str(error))


async def _start(server: Server) -> None:
    """Wait for a start even if it was cancelled, so that the server can be found and stopped afterwards."""
    starting = asyncio.create_task(asyncio.to_thread(server.start))
    try:
        await asyncio.shield(starting)
    except asyncio.CancelledError:
        await asyncio.gather(starting, return_exceptions=True)
        raise
