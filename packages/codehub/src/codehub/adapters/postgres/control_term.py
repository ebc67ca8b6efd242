"""The fence of every coordinator transaction (INV-11): `system_locks` FOR SHARE with the epoch, before anything else.

The next leader's increment waits for transactions that hold the lock; after it, an older epoch changes nothing. A
single-statement write includes the fence (a `term` CTE): it is checked before any row and locked until the statement
commits.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, LiteralString

from codehub.adapters.postgres.pool import Database, Transaction
from codehub.domain.errors import Deposed

# A frozen leader must not hold the row longer than the lock's own idle timeout, because the next leader waits for it.
_LOCK_TERM = """
    SELECT epoch, set_config('idle_in_transaction_session_timeout', '5s', true)
    FROM system_locks WHERE lock_name = 'coordinator' FOR SHARE
"""


@asynccontextmanager
async def as_leader(database: Database, epoch: int) -> AsyncIterator[Transaction]:
    """Open a transaction as the leader of this epoch. Raises Deposed if another leader has been elected."""
    async with database.transaction() as tx:
        row = await (await tx.execute(_LOCK_TERM)).fetchone()
        found = None if row is None else row["epoch"]
        if found != epoch:
            raise _deposed(epoch, found)
        yield tx


async def fenced(
    database: Database, epoch: int, statement: LiteralString, values: Mapping[str, object]
) -> Mapping[str, Any]:
    """Run a write of one statement that reads `term` first and returns `leads`, and return its one row.

    Raises Deposed as above.
    """
    async with database.statement() as connection:
        row = await (await connection.execute(statement, {**values, "epoch": epoch})).fetchone()
        assert row is not None
        if row["leads"]:
            return row
        now = await (
            await connection.execute("SELECT epoch FROM system_locks WHERE lock_name = 'coordinator'")
        ).fetchone()
    raise _deposed(epoch, None if now is None else now["epoch"])


def _deposed(epoch: int, found: int | None) -> Deposed:
    return Deposed(f"epoch {epoch} is over: the database is at {found}")
