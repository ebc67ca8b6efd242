"""ports.leadership on PostgreSQL: a session-level advisory lock on a dedicated connection, and the epoch (INV-11).

A frozen process still answers TCP keepalives. The lock's session therefore has an idle timeout and is pinged well within
it: the server releases the lock of a leader that stops pinging. The term's own deadline, on the monotonic clock, is earlier
than the server's.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

import psycopg
from psycopg import errors as pg
from psycopg.rows import DictRow

from codehub.adapters.postgres.errors import translated
from codehub.adapters.postgres.pool import connection_arguments
from codehub.domain.errors import BackendDown, CodeHubError, Deposed
from codehub.ports.clock import Clock

IDLE_TIMEOUT_S: Final = 5.0
PING_EVERY_S: Final = 1.0
# Counted from the sending of the last answered ping. Below the server's timeout, so that we stop before the next leader
# starts.
TERM_S: Final = 4.0
# The increment waits for transactions of the previous leader, which end within their idle timeout at the latest.
_EPOCH_WAIT: Final = "15s"


@dataclass(slots=True)
class _Lease:
    connection: psycopg.AsyncConnection[DictRow]
    epoch: int
    holder_id: str
    clock: Clock
    deadline: float

    def fence(self) -> None:
        if self.clock.monotonic() >= self.deadline:
            raise Deposed(f"the term of epoch {self.epoch} is over: its lock was not confirmed in time")

    async def hold(self) -> None:
        while True:
            await asyncio.sleep(PING_EVERY_S)
            self.fence()
            sent = self.clock.monotonic()
            try:
                async with asyncio.timeout(max(0.0, self.deadline - sent)):
                    await self.connection.execute("SELECT 1")
            except (TimeoutError, psycopg.Error) as error:
                self.deadline = float("-inf")
                raise Deposed(f"the lock's connection is lost: {error}") from error
            self.deadline = sent + TERM_S


# Limits the lock's session for as long as it lasts.
_LIMIT_SESSION = "SELECT set_config('idle_session_timeout', %s, false), set_config('lock_timeout', %s, false)"
# Starts a term: the next epoch, this holder, and no heartbeats yet.
_BEGIN_TERM = """
    UPDATE system_locks SET epoch = epoch + 1, holder_id = %s, acquired_at = now(), components = '{}'
    WHERE lock_name = 'coordinator' RETURNING epoch
"""


class PostgresElection:
    """Implements ports.leadership.Election."""

    def __init__(self, url: str, *, lock_id: int, retry_interval_s: float, clock: Clock) -> None:
        self._url = url
        self._lock_id = lock_id
        self._retry_interval_s = retry_interval_s
        self._clock = clock

    @asynccontextmanager
    async def campaign(self, holder_id: str) -> AsyncIterator[_Lease]:
        with translated():
            connection = await self._connect()
        try:
            with translated():
                await self._wait_for_the_lock(connection)
                lease = await self._begin_term(connection, holder_id)
            try:
                yield lease
            finally:
                lease.deadline = float("-inf")
        finally:
            # Closing releases the lock. Bounded, because a dead server must not block us.
            await asyncio.shield(_closed(connection))

    async def _connect(self) -> psycopg.AsyncConnection[DictRow]:
        arguments = connection_arguments("codehub-leader")
        lock_timeout_ms = max(1, int(self._retry_interval_s * 1000))
        arguments["options"] = f"-c timezone=UTC -c statement_timeout=0 -c lock_timeout={lock_timeout_ms}"
        return await psycopg.AsyncConnection.connect(self._url, **arguments)

    async def _wait_for_the_lock(self, connection: psycopg.AsyncConnection[DictRow]) -> None:
        """Wait for the lock inside the call, so that we get a released lock at once.

        Bounded and repeated, so that vacuum is not held up.
        """
        while True:
            try:
                await connection.execute("SELECT pg_advisory_lock(%s)", [self._lock_id])
                return
            except pg.LockNotAvailable:
                continue

    async def _begin_term(self, connection: psycopg.AsyncConnection[DictRow], holder_id: str) -> _Lease:
        await connection.execute(_LIMIT_SESSION, [f"{int(IDLE_TIMEOUT_S)}s", _EPOCH_WAIT])
        row = await (await connection.execute(_BEGIN_TERM, [holder_id])).fetchone()
        if row is None:
            raise BackendDown("system_locks has no row for the coordinator: run `codehub migrate`")
        # Counted from a ping, not from the increment: we may have been frozen while the increment's answer was on its way.
        sent = self._clock.monotonic()
        await connection.execute("SELECT 1")
        return _Lease(connection, int(row["epoch"]), holder_id, self._clock, sent + TERM_S)


async def _closed(connection: psycopg.AsyncConnection[DictRow]) -> None:
    try:
        async with asyncio.timeout(2.0):
            await connection.close()
    except (TimeoutError, psycopg.Error, CodeHubError):
        connection.pgconn.finish()
