"""The database's information about the system itself: which coordinator leads."""

from __future__ import annotations

from typing import Final

from codehub.adapters.postgres.pool import Transaction
from codehub.domain.leadership import Leadership

# Repeated every few seconds while it lasts; an older one is from a coordinator that is gone.
_REFUSALS: Final = """
    SELECT substr(name, length('refuses_to_lead.') + 1) AS node_id, value ->> 'why' AS why
    FROM system_facts
    WHERE starts_with(name, 'refuses_to_lead.') AND (value ->> 'at')::timestamptz > now() - interval '1 minute'
    ORDER BY name
"""


# Returns the leader's row and whether its advisory lock is held.
_LEADERSHIP = """
    SELECT holder_id, epoch, acquired_at, components, EXISTS (
        SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND granted AND objsubid = 1
            AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
            AND classid::bigint = %s AND objid::bigint = %s
    ) AS held
    FROM system_locks WHERE lock_name = 'coordinator'
"""


async def leadership(tx: Transaction, lock_id: int) -> Leadership:
    # PostgreSQL shows a one-argument advisory lock's key in two halves, with objsubid 1.
    row = await (await tx.execute(_LEADERSHIP, [(lock_id >> 32) & 0xFFFFFFFF, lock_id & 0xFFFFFFFF])).fetchone()
    if row is None:
        return Leadership("", 0, None, held=False, components={})
    refusals = {each["node_id"]: each["why"] for each in await (await tx.execute(_REFUSALS)).fetchall()}
    return Leadership(row["holder_id"], row["epoch"], row["acquired_at"], row["held"], row["components"], refusals)
