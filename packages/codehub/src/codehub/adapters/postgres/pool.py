"""The way to a database connection: `async with database.transaction() as tx`; for one statement, `statement()`.

Rows come as dictionaries keyed by column. No connection is held while streaming, waiting or talking to a backend: take
one, do the statements, give it back.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, TypeAlias
from weakref import WeakKeyDictionary

from psycopg import AsyncConnection
from psycopg.rows import DictRow, dict_row
from psycopg_pool import AsyncConnectionPool

from codehub.adapters.postgres.errors import WritesRefused, translated

Transaction: TypeAlias = AsyncConnection[DictRow]

# A statement of ours that takes longer has met a lock or a dead disk; better an error than a pile-up.
_STATEMENT_TIMEOUT_MS = 15_000
_LOCK_TIMEOUT_MS = 10_000
# A connection that answered this recently is not asked first whether it still does: that would double a statement's cost.
_FRESH_S = 0.5
# New pages on the database's disk, given back at the commit.
_WRITE_A_LITTLE = (
    "CREATE TEMPORARY TABLE codehub_writes ON COMMIT DROP AS SELECT repeat('x', 1000) FROM generate_series(1, 256)"
)


class Database:
    """A pool on one database URL."""

    def __init__(self, url: str, *, max_connections: int = 10, timeout_s: float = 5.0, name: str = "codehub") -> None:
        self._url = url
        self._refused_writes = False
        self._answered: WeakKeyDictionary[Transaction, float] = WeakKeyDictionary()
        self._pool: AsyncConnectionPool[Transaction] = AsyncConnectionPool(
            url,
            min_size=1,
            max_size=max_connections,
            timeout=timeout_s,
            max_waiting=1_000,
            open=False,
            name=name,
            # A pooled connection that died while idle must not surprise its next user.
            check=self._check,
            # The pool keeps trying for ever; each failed attempt is an error for whoever waits, after `timeout_s`.
            reconnect_timeout=10.0,
            kwargs=connection_arguments(name),
        )

    @property
    def url(self) -> str:
        return self._url

    async def open(self) -> None:
        """Ready to be used. The server need not be there yet: callers get BackendDown until it is."""
        await self._pool.open(wait=False)

    async def close(self) -> None:
        await self._pool.close(timeout=5.0)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Transaction]:
        """One transaction: committed at the end, rolled back on any error."""
        async with self.statement() as connection:
            with translated():
                async with connection.transaction():
                    yield connection

    @asynccontextmanager
    async def statement(self) -> AsyncIterator[Transaction]:
        """A connection on which each statement is a transaction of its own: one round trip instead of three."""
        task = asyncio.current_task()
        asked_to_end = task.cancelling() if task is not None else 0
        with self._noting_refusals(), translated():
            async with self._pool.connection() as connection:
                # Python 3.11's wait_for, by which the pool waits, loses a cancellation that comes with the connection.
                if task is not None and task.cancelling() > asked_to_end:
                    raise asyncio.CancelledError
                yield connection
                self._answered[connection] = asyncio.get_running_loop().time()

    async def take_writes(self) -> None:
        """Raises BackendDown unless the database takes writes. A full disk is tried only once one was met: it costs one."""
        async with self.transaction() as tx:
            row = await (await tx.execute("SELECT current_setting('transaction_read_only') AS read_only")).fetchone()
            if row is not None and row["read_only"] == "on":
                raise WritesRefused("the database takes no writes: it is read-only")
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
            await AsyncConnectionPool.check_connection(connection)

    async def __aenter__(self) -> Database:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


def connection_arguments(name: str) -> dict[str, Any]:
    """How every connection of ours is made, pooled or dedicated."""
    return {
        "row_factory": dict_row,
        "autocommit": True,
        "connect_timeout": 5,
        "application_name": name,
        # Prepared statements break behind transaction poolers; ours are cheap to plan.
        "prepare_threshold": None,
        "keepalives": 1,
        "keepalives_idle": 10,
        "keepalives_interval": 3,
        "keepalives_count": 3,
        "options": f"-c statement_timeout={_STATEMENT_TIMEOUT_MS} -c lock_timeout={_LOCK_TIMEOUT_MS} -c timezone=UTC",
    }
