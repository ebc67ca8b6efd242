"""The fence of every coordinator transaction (contract 11): `system_locks` FOR SHARE with the epoch, before anything else.

The next leader's increment waits for transactions that hold it; after it, an older epoch changes nothing.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from codehub.adapters.postgres.pool import Database, Transaction
from codehub.domain.errors import Deposed

# A frozen leader must not hold the row for longer than the lock's own idle timeout: the next leader waits for it.
_TERM = """
    SELECT epoch, set_config('idle_in_transaction_session_timeout', '5s', true)
    FROM system_locks WHERE lock_name = 'coordinator' FOR SHARE
"""


@asynccontextmanager
async def as_leader(database: Database, epoch: int) -> AsyncIterator[Transaction]:
    """A transaction of the leader of this epoch. Raises Deposed when another leads."""
    async with database.transaction() as tx:
        row = await (await tx.execute(_TERM)).fetchone()
        found = None if row is None else row["epoch"]
        if found != epoch:
            raise Deposed(f"epoch {epoch} is over: the database is at {found}")
        yield tx
