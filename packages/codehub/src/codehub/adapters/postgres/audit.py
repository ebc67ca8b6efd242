"""Statements on `audit_events`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import LiteralString

from psycopg.types.json import Jsonb

from codehub.adapters.postgres.locks import AUDIT, AUDIT_SURPLUS
from codehub.adapters.postgres.pool import Transaction
from codehub.domain.audit import AuditEvent, AuditFilter, Flood

_PURGE_AT_ONCE = 5_000
_DROP_AT_ONCE = 10_000  # about half a second


# Adds one event. The database assigns the id.
_INSERT = """
    INSERT INTO audit_events (at, event, actor, actor_id, token_id, address, target, workspace_id, detail)
    VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s)
"""


async def record(tx: Transaction, event: AuditEvent) -> None:
    """Insert an audit event, as the last statement of the transaction that makes the audited change.

    The lock makes ids increase in commit order, so a reader that follows the trail by id misses nothing.
    """
    await tx.execute("SELECT pg_advisory_xact_lock(%s)", [AUDIT])
    await tx.execute(
        _INSERT,
        [
            event.at,
            str(event.event),
            event.actor,
            event.actor_id,
            event.token_id,
            event.address,
            event.target,
            event.workspace_id,
            Jsonb(dict(event.detail)),
        ],
    )


# Lists events before an id, newest first. A parameter that is NULL does not filter.
_NEWEST_FIRST = """
    SELECT id, at, event, actor, actor_id, token_id, address, target, workspace_id, detail FROM audit_events
    WHERE (%(edge)s::bigint IS NULL OR id < %(edge)s)
        AND (%(event)s::text IS NULL OR event = %(event)s)
        AND (%(prefix)s::text IS NULL OR starts_with(event, %(prefix)s))
        AND (%(actor)s::text IS NULL OR actor = %(actor)s)
        AND (%(workspace_id)s::text IS NULL OR workspace_id = %(workspace_id)s)
        AND (%(since)s::timestamptz IS NULL OR at >= %(since)s)
        AND (%(until)s::timestamptz IS NULL OR at < %(until)s)
    ORDER BY id DESC LIMIT %(limit)s
"""
# The same after an id, oldest first.
_OLDEST_FIRST = """
    SELECT id, at, event, actor, actor_id, token_id, address, target, workspace_id, detail FROM audit_events
    WHERE id > %(edge)s
        AND (%(event)s::text IS NULL OR event = %(event)s)
        AND (%(prefix)s::text IS NULL OR starts_with(event, %(prefix)s))
        AND (%(actor)s::text IS NULL OR actor = %(actor)s)
        AND (%(workspace_id)s::text IS NULL OR workspace_id = %(workspace_id)s)
        AND (%(since)s::timestamptz IS NULL OR at >= %(since)s)
        AND (%(until)s::timestamptz IS NULL OR at < %(until)s)
    ORDER BY id LIMIT %(limit)s
"""


async def newest_first(tx: Transaction, which: AuditFilter, *, before: int | None, limit: int) -> list[AuditEvent]:
    return await _page(tx, _NEWEST_FIRST, which, before, limit)


async def oldest_first(tx: Transaction, which: AuditFilter, *, after: int, limit: int) -> list[AuditEvent]:
    return await _page(tx, _OLDEST_FIRST, which, after, limit)


async def _page(
    tx: Transaction, statement: LiteralString, which: AuditFilter, edge: int | None, limit: int
) -> list[AuditEvent]:
    is_prefix = which.event is not None and which.event.endswith("*")
    values = {
        "edge": edge,
        "event": None if is_prefix else which.event or None,
        "prefix": which.event[:-1] if which.event and is_prefix else None,
        "actor": which.actor,
        "workspace_id": which.workspace_id,
        "since": which.since,
        "until": which.until,
        "limit": limit,
    }
    rows = await (await tx.execute(statement, values)).fetchall()
    return [AuditEvent(**row) for row in rows]


# Removes one batch of events before a time, oldest first, and leaves rows that another purge holds.
_PURGE = """
    DELETE FROM audit_events WHERE id IN (
        SELECT id FROM audit_events WHERE at < %s ORDER BY id LIMIT %s FOR UPDATE SKIP LOCKED
    )
"""


async def purge(tx: Transaction, before: datetime, retention_s: float) -> int:
    """Remove a batch of events older than the retention and return how many. The table's trigger checks the same rule."""
    await tx.execute("SELECT set_config('codehub.audit_retention_s', %s, true)", [f"{retention_s:.0f}"])
    done = await tx.execute(_PURGE, [before, _PURGE_AT_ONCE])
    return done.rowcount


# Lists whose events of one kind are more than are kept. Only users and strangers: what administrators, the command line and
# CodeHub itself do is bounded by their own work, and always kept.
_FLOODS = """
    SELECT actor, actor_id, event FROM audit_events
    WHERE actor_id IN (SELECT id FROM users WHERE NOT is_admin) OR (actor_id IS NULL AND actor = ANY(%(strangers)s))
    GROUP BY actor, actor_id, event HAVING count(*) > %(kept)s
"""
# Removes the oldest of them, and returns how many and of which time the newest was.
_DROP_OLDEST = """
    WITH gone AS (
        DELETE FROM audit_events WHERE id IN (
            SELECT id FROM audit_events
            WHERE actor = %(actor)s AND actor_id IS NOT DISTINCT FROM %(actor_id)s AND event = %(event)s
                AND id <= (
                    SELECT id FROM audit_events
                    WHERE actor = %(actor)s AND actor_id IS NOT DISTINCT FROM %(actor_id)s AND event = %(event)s
                    ORDER BY id DESC OFFSET %(kept)s LIMIT 1
                )
            ORDER BY id LIMIT %(at_once)s
        ) RETURNING at
    )
    SELECT count(*) AS events, max(at) AS until FROM gone
"""


async def floods(tx: Transaction, kept: int, strangers: Sequence[str]) -> list[Flood]:
    """`strangers` are the actors of events without a user."""
    rows = await (await tx.execute(_FLOODS, {"kept": kept, "strangers": list(strangers)})).fetchall()
    return [Flood(**row) for row in rows]


async def drop_oldest(tx: Transaction, flood: Flood, kept: int) -> tuple[int, datetime | None]:
    """Remove a batch of the oldest events beyond the newest `kept`. The table's triggers check the same rule."""
    await tx.execute("SELECT pg_advisory_xact_lock(%s)", [AUDIT_SURPLUS])
    await tx.execute("SELECT set_config('codehub.audit_kept', %s, true)", [str(kept)])
    values = {
        "actor": flood.actor,
        "actor_id": flood.actor_id,
        "event": flood.event,
        "kept": kept,
        "at_once": _DROP_AT_ONCE,
    }
    row = await (await tx.execute(_DROP_OLDEST, values)).fetchone()
    assert row is not None
    return row["events"], row["until"]
