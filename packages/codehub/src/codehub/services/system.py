"""What the system says of itself, to whoever watches over it."""

from __future__ import annotations

from codehub.adapters.postgres import system
from codehub.adapters.postgres.pool import Database
from codehub.domain.leadership import Leadership


async def leadership(database: Database, lock_id: int) -> Leadership:
    """The last recorded term of a coordinator, and whether someone holds the lock right now."""
    async with database.transaction() as tx:
        return await system.leadership(tx, lock_id)
