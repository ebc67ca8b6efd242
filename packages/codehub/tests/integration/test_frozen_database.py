"""A database server that accepts connections and does not answer is reported, not waited for."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator

import pytest

from codehub.adapters.postgres.answers import AnsweredConnection
from codehub.adapters.postgres.pool import Database, Transaction
from codehub.domain.errors import BackendDown

# Far longer than the limits below, even on a busy machine, and far shorter than for ever.
_LONGEST_S = 60


async def test_a_statement_that_the_server_never_answers_is_an_error(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(AnsweredConnection, "answer_s", 1.0)
    async with asyncio.timeout(_LONGEST_S), Database(database_url) as database:
        with pytest.raises(BackendDown):
            async with database.statement() as connection, _frozen(connection):
                await connection.execute("SELECT 1")


async def test_a_connection_whose_server_is_frozen_is_replaced(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("codehub.adapters.postgres.pool._FRESH_S", 0.0)
    async with asyncio.timeout(_LONGEST_S), Database(database_url, max_connections=1, timeout_s=1.0) as database:
        async with database.statement() as connection:
            frozen = connection
        async with _frozen(frozen):
            with pytest.raises(BackendDown):
                async with database.statement():
                    pass
            while True:
                try:
                    async with database.statement() as connection:
                        assert connection is not frozen
                        break
                except BackendDown:
                    continue


async def test_a_task_that_is_cancelled_while_the_server_is_frozen_ends(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection is cut while the driver waits for the server to end the statement of the cancelled task."""
    monkeypatch.setattr(AnsweredConnection, "answer_s", 1.0)
    begun = asyncio.Event()

    async def use(database: Database) -> None:
        async with database.statement() as connection, _frozen(connection):
            begun.set()
            with contextlib.suppress(Exception):  # as a loop does that goes on when the database is away
                await connection.execute("SELECT 1")
        await asyncio.Event().wait()

    async with asyncio.timeout(_LONGEST_S), Database(database_url) as database:
        task = asyncio.create_task(use(database))
        await begun.wait()
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task], timeout=_LONGEST_S / 2)
        ended = task.cancelled()
        task.cancel()
        assert ended, "the cancellation was lost"


@contextlib.asynccontextmanager
async def _frozen(connection: Transaction) -> AsyncIterator[None]:
    """Freeze the server's process of this connection. The rest of the server goes on, for other tests."""
    pid = connection.info.backend_pid
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)
