"""The state of the system, for monitoring."""

from __future__ import annotations

from codehub.adapters.postgres import system
from codehub.adapters.postgres.pool import Database
from codehub.domain.leadership import Leadership


async def leadership(database: Database, lock_id: int) -> Leadership:
    """Return a coordinator's last recorded term, and whether the lock is currently held."""
    async with database.transaction() as tx:
        return await system.leadership(tx, lock_id)
