"""Database connections: `async with database.transaction() as tx`, or `statement()` for a single statement.

Rows are dictionaries keyed by column. No connection is held while streaming, waiting or talking to a backend: take one, run
the statements, return it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, TypeAlias
from weakref import WeakKeyDictionary

from psycopg import AsyncConnection
from psycopg.rows import DictRow, dict_row
from psycopg_pool import AsyncConnectionPool

from codehub.adapters.postgres.answers import AnsweredConnection, cut_after
from codehub.adapters.postgres.errors import ReadOnlySession, WritesRefused, translated

# Commands do not configure logging, and then Python would print the pool's warnings beside our own messages.
logging.getLogger("psycopg.pool").addHandler(logging.NullHandler())

Transaction: TypeAlias = AsyncConnection[DictRow]

# A statement that takes longer is blocked by a lock or a dead disk. An error is better than a pile-up.
_STATEMENT_TIMEOUT_MS = 15_000
_LOCK_TIMEOUT_MS = 10_000
# A process that is frozen, or cut off, in the middle of a transaction must not hold its rows for ever.
_IDLE_IN_TRANSACTION_MS = 60_000
# A connection that answered this recently is not checked before use, because the check would double a statement's cost.
_FRESH_S = 0.5
# Allocates new pages on the database's disk, which the commit releases.
_WRITE_A_LITTLE = (
    "CREATE TEMPORARY TABLE codehub_writes ON COMMIT DROP AS SELECT repeat('x', 1000) FROM generate_series(1, 256)"
)


class Database:
    """A connection pool for one database URL."""

    def __init__(self, url: str, *, max_connections: int = 10, timeout_s: float = 5.0, name: str = "codehub") -> None:
        self._url = url
        self._timeout_s = timeout_s
        self._refused_writes = False
        self._answered: WeakKeyDictionary[Transaction, float] = WeakKeyDictionary()
        self._pool: AsyncConnectionPool[AnsweredConnection] = AsyncConnectionPool(
            url,
            min_size=1,
            max_size=max_connections,
            timeout=timeout_s,
            max_waiting=1_000,
            open=False,
            name=name,
            # Check idle connections, so that the next user does not get a dead one.
            check=self._check,
            connection_class=AnsweredConnection,
            # The pool retries forever. Callers that wait get an error after `timeout_s`.
            reconnect_timeout=10.0,
            kwargs=connection_arguments(name),
        )

    @property
    def url(self) -> str:
        return self._url

    async def open(self) -> None:
        """Open the pool. The server need not be reachable yet: callers get BackendDown until it is."""
        await self._pool.open(wait=False)

    async def close(self) -> None:
        await self._pool.close(timeout=5.0)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Transaction]:
        """Open a transaction that commits at the end and rolls back on any error."""
        async with self.statement() as connection, connection.transaction():
            yield connection

    @asynccontextmanager
    async def statement(self) -> AsyncIterator[Transaction]:
        """Yield a connection in autocommit mode: one round trip per statement instead of three."""
        task = asyncio.current_task()
        cancelled_before = task.cancelling() if task is not None else 0
        with self._noting_refusals(), translated():
            async with self._pool.connection() as connection:
                # The pool waits with Python 3.11's wait_for, which loses a cancellation that arrives together with the
                # connection.
                if task is not None and task.cancelling() > cancelled_before:
                    raise asyncio.CancelledError
                try:
                    with translated():
                        yield connection
                except ReadOnlySession:
                    # `default_transaction_read_only` is read when a session begins, and after a failover the address leads
                    # to another server: kept by the pool, this session would refuse writes for as long as it lives.
                    await connection.close()
                    raise
                self._answered[connection] = asyncio.get_running_loop().time()

    async def take_writes(self) -> None:
        """Raise BackendDown unless the database accepts writes.

        Checks for a full disk only after one was seen, because it costs a write.
        """
        async with self.transaction() as tx:
            row = await (await tx.execute("SELECT current_setting('transaction_read_only') AS read_only")).fetchone()
            if row is not None and row["read_only"] == "on":
                raise ReadOnlySession("the database takes no writes: it is read-only")
            if self._refused_writes:
                await tx.execute(_WRITE_A_LITTLE)
        self._refused_writes = False

    @contextmanager
    def _noting_refusals(self) -> Iterator[None]:
        try:
            yield
        except WritesRefused:
            self._refused_writes = True
            raise

    async def _check(self, connection: Transaction) -> None:
        if asyncio.get_running_loop().time() - self._answered.get(connection, float("-inf")) > _FRESH_S:
            with cut_after(connection, self._timeout_s):
                await AsyncConnectionPool.check_connection(connection)

    async def __aenter__(self) -> Database:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


def connection_arguments(name: str) -> dict[str, Any]:
    """Return the arguments for every connection, pooled or dedicated."""
    return {
        "row_factory": dict_row,
        "autocommit": True,
        "connect_timeout": 5,
        "application_name": name,
        # Otherwise text of a database in SQL_ASCII arrives as bytes.
        "client_encoding": "utf8",
        # Prepared statements break behind transaction poolers, and our statements are cheap to plan.
        "prepare_threshold": None,
        "keepalives": 1,
        "keepalives_idle": 10,
        "keepalives_interval": 3,
        "keepalives_count": 3,
        "options": f"-c statement_timeout={_STATEMENT_TIMEOUT_MS} -c lock_timeout={_LOCK_TIMEOUT_MS} -c timezone=UTC"
        f" -c idle_in_transaction_session_timeout={_IDLE_IN_TRANSACTION_MS}",
    }
