"""A process that is frozen, or cut off from the database, in the middle of a write holds nothing that others need."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from codehub.adapters.postgres.control_store import PostgresControlStore
from codehub.adapters.postgres.pool import Database

_PORT = 5432


@contextlib.asynccontextmanager
async def cut_off_after(url: str, words: bytes, place: Path) -> AsyncIterator[tuple[str, asyncio.Event]]:
    """Yield a URL of the same database, and an event: once it was sent these words, nothing else reaches it."""
    target = conninfo_to_dict(url)
    host, port = str(target["host"]), int(target.get("port") or _PORT)
    cut, ended = asyncio.Event(), asyncio.Event()
    writers: list[asyncio.StreamWriter] = []

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, client: bool) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65536):
                if client and cut.is_set():
                    continue
                writer.write(data)
                await writer.drain()
                if client and words in data:
                    cut.set()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if host.startswith("/"):
            server_reader, server_writer = await asyncio.open_unix_connection(f"{host}/.s.PGSQL.{port}")
        else:
            server_reader, server_writer = await asyncio.open_connection(host, port)
        writers.extend((writer, server_writer))
        tasks = [
            asyncio.create_task(relay(reader, server_writer, client=True)),
            asyncio.create_task(relay(server_reader, writer, client=False)),
        ]
        await ended.wait()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    server = await asyncio.start_unix_server(connected, place / f".s.PGSQL.{_PORT}")
    try:
        yield make_conninfo(url, host=str(place), port=_PORT), cut
    finally:
        ended.set()
        server.close()
        for writer in writers:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()


async def test_a_leader_frozen_while_it_writes_its_heartbeats_does_not_keep_the_next_from_leading(
    database: Database, tmp_path: Path
) -> None:
    async with database.transaction() as tx:
        row = await (await tx.execute("SELECT epoch FROM system_locks WHERE lock_name = 'coordinator'")).fetchone()
    assert row is not None
    async with cut_off_after(database.url, b"UPDATE system_locks", tmp_path) as (url, cut), Database(url) as frozen:
        note = asyncio.create_task(PostgresControlStore(frozen).note_components(row["epoch"], {"gc_runner": {}}))
        async with asyncio.timeout(60):
            await cut.wait()
        async with await psycopg.AsyncConnection.connect(database.url, autocommit=True) as successor:
            await successor.execute("SET lock_timeout = '15s'")
            # Raises LockNotAvailable if the row is held.
            await successor.execute("UPDATE system_locks SET epoch = epoch + 1 WHERE lock_name = 'coordinator'")
        note.cancel()
        await asyncio.gather(note, return_exceptions=True)


async def test_every_session_of_the_pool_gives_up_a_transaction_that_nobody_continues(database: Database) -> None:
    async with database.transaction() as tx:
        row = await (
            await tx.execute(
                "SELECT setting::int AS ms FROM pg_settings WHERE name = 'idle_in_transaction_session_timeout'"
            )
        ).fetchone()
    assert row is not None
    assert 0 < row["ms"] <= 60_000
