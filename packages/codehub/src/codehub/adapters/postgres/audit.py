"""Statements on `audit_events`."""

from __future__ import annotations

from datetime import datetime

from psycopg.types.json import Jsonb

from codehub.adapters.postgres.locks import AUDIT
from codehub.adapters.postgres.pool import Transaction
from codehub.domain.audit import AuditEvent, AuditFilter

_COLUMNS = "id, at, event, actor, actor_id, token_id, address, target, workspace_id, detail"
_PURGE_AT_ONCE = 5_000


async def record(tx: Transaction, event: AuditEvent) -> None:
    """Insert an audit event, as the last statement of the transaction that makes the audited change.

    The lock makes ids increase in commit order, so a reader that follows the trail by id misses nothing.
    """
    await tx.execute("SELECT pg_advisory_xact_lock(%s)", [AUDIT])
    await tx.execute(
        "INSERT INTO audit_events (at, event, actor, actor_id, token_id, address, target, workspace_id, detail)"
        " VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s)",
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


async def newest_first(tx: Transaction, which: AuditFilter, *, before: int | None, limit: int) -> list[AuditEvent]:
    return await _page(tx, which, "id < %(edge)s", before, "DESC", limit)


async def oldest_first(tx: Transaction, which: AuditFilter, *, after: int, limit: int) -> list[AuditEvent]:
    return await _page(tx, which, "id > %(edge)s", after, "ASC", limit)


async def _page(
    tx: Transaction, which: AuditFilter, edge: str, at: int | None, order: str, limit: int
) -> list[AuditEvent]:
    wanted: dict[str, object | None] = {
        edge: at,
        "event = %(event)s": which.event if which.event and not which.event.endswith("*") else None,
        "starts_with(event, %(prefix)s)": which.event[:-1] if which.event and which.event.endswith("*") else None,
        "actor = %(actor)s": which.actor,
        "workspace_id = %(workspace_id)s": which.workspace_id,
        "at >= %(since)s": which.since,
        "at < %(until)s": which.until,
    }
    conditions = " AND ".join(text for text, value in wanted.items() if value is not None) or "true"
    values = {text.partition("%(")[2].partition(")")[0]: value for text, value in wanted.items()}
    rows = await (
        await tx.execute(
            f"SELECT {_COLUMNS} FROM audit_events WHERE {conditions} ORDER BY id {order} LIMIT %(limit)s",  # noqa: S608
            {**values, "limit": limit},
        )
    ).fetchall()
    return [AuditEvent(**row) for row in rows]


async def purge(tx: Transaction, before: datetime, retention_s: float) -> int:
    """Remove a batch of events older than the retention and return how many. The table's trigger checks the same rule."""
    await tx.execute("SELECT set_config('codehub.audit_retention_s', %s, true)", [f"{retention_s:.0f}"])
    done = await tx.execute(
        "DELETE FROM audit_events WHERE id IN (SELECT id FROM audit_events WHERE at < %s ORDER BY id LIMIT %s"
        " FOR UPDATE SKIP LOCKED)",
        [before, _PURGE_AT_ONCE],
    )
    return done.rowcount
