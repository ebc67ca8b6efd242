"""Statements on templates and their versions. `domain.templates` interprets a version's text."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from psycopg.types.json import Jsonb

from codehub.adapters.postgres.pool import Transaction
from codehub.domain.applied_template import AppliedTemplate, encode
from codehub.domain.templates import StoredVersion

# Returns the newest version of each template, or of one, with the number of its workspaces.
_NEWEST = """
    SELECT t.name, t.archived_at, v.version, v.source, v.created_by, v.created_at,
        (SELECT count(*) FROM workspaces w WHERE w.template ->> 'name' = t.name AND w.deleted_at IS NULL) AS workspaces
    FROM templates t
    JOIN LATERAL (SELECT * FROM template_versions v WHERE v.name = t.name ORDER BY version DESC LIMIT 1) v ON true
    WHERE (%(name)s::text IS NULL OR t.name = %(name)s) AND (%(archived)s OR t.archived_at IS NULL)
    ORDER BY t.name
"""


async def newest(tx: Transaction, name: str) -> StoredVersion | None:
    row = await (await tx.execute(_NEWEST, {"name": name, "archived": True})).fetchone()
    return None if row is None else _stored(row)


async def all_newest(tx: Transaction, *, archived: bool = False) -> list[StoredVersion]:
    rows = await (await tx.execute(_NEWEST, {"name": None, "archived": archived})).fetchall()
    return [_stored(row) for row in rows]


async def versions(tx: Transaction, name: str) -> list[StoredVersion]:
    """Return the versions, newest first."""
    rows = await (
        await tx.execute("SELECT * FROM template_versions WHERE name = %s ORDER BY version DESC", [name])
    ).fetchall()
    return [_stored(row) for row in rows]


async def version(tx: Transaction, name: str, number: int) -> StoredVersion | None:
    row = await (
        await tx.execute("SELECT * FROM template_versions WHERE name = %s AND version = %s", [name, number])
    ).fetchone()
    return None if row is None else _stored(row)


async def lock(tx: Transaction, name: str) -> bool:
    """Lock a template against new versions and archiving until the transaction ends. Return whether it exists."""
    row = await (await tx.execute("SELECT 1 FROM templates WHERE name = %s FOR UPDATE", [name])).fetchone()
    return row is not None


async def claim(tx: Transaction, name: str, now: datetime) -> None:
    """Lock a template for a push, also one that does not exist yet: of two first pushes, one sees the other's version."""
    await tx.execute(
        "INSERT INTO templates (name, created_at) VALUES (%s, %s) ON CONFLICT (name) DO UPDATE SET name = excluded.name",
        [name, now],
    )


async def hold(tx: Transaction, name: str) -> None:
    """Keep the template unchanged until the transaction ends, while a workspace is created from it."""
    await tx.execute("SELECT 1 FROM templates WHERE name = %s FOR SHARE", [name])


# Adds the next version of a template.
_PUSH = """
    INSERT INTO template_versions (name, version, source, created_by, created_at)
    SELECT %(name)s, coalesce(max(version), 0) + 1, %(source)s, %(by)s, %(now)s
    FROM template_versions WHERE name = %(name)s RETURNING version
"""
# Offers the new version to the template's workspaces, locked in order of ids like everywhere else.
_OFFER_UPDATE = """
    UPDATE workspaces SET template_latest = %s WHERE id IN (
        SELECT id FROM workspaces WHERE template ->> 'name' = %s AND deleted_at IS NULL
        ORDER BY id FOR NO KEY UPDATE
    )
"""


async def push(tx: Transaction, name: str, source: str, by: str, now: datetime) -> int:
    """Add the next version, and unarchive the template if needed.

    The caller must have claimed it.
    """
    await tx.execute("UPDATE templates SET archived_at = NULL WHERE name = %s", [name])
    row = await (await tx.execute(_PUSH, {"name": name, "source": source, "by": by, "now": now})).fetchone()
    assert row is not None
    number = int(row["version"])
    await tx.execute(_OFFER_UPDATE, [number, name])
    return number


async def set_archived(tx: Transaction, name: str, at: datetime | None) -> None:
    await tx.execute("UPDATE templates SET archived_at = %s WHERE name = %s", [at, name])


async def set_next(tx: Transaction, workspace_id: str, applied: AppliedTemplate | None, now: datetime) -> None:
    """Set the template version that a workspace uses from its next start."""
    value = None if applied is None else Jsonb(encode(applied))
    await tx.execute(
        "UPDATE workspaces SET template_next = %s, updated_at = %s WHERE id = %s", [value, now, workspace_id]
    )


async def time_zone(tx: Transaction, user_id: str) -> str:
    """Return the time zone of a user's schedules; empty for UTC."""
    row = await (await tx.execute("SELECT time_zone FROM users WHERE id = %s", [user_id])).fetchone()
    return "" if row is None else str(row["time_zone"])


async def set_time_zone(tx: Transaction, user_id: str, name: str) -> None:
    await tx.execute("UPDATE users SET time_zone = %s WHERE id = %s", [name, user_id])


def _stored(row: Mapping[str, Any]) -> StoredVersion:
    return StoredVersion(
        name=row["name"],
        version=row["version"],
        source=row["source"],
        created_by=row["created_by"],
        created_at=row["created_at"],
        archived_at=row.get("archived_at"),
        workspaces=row.get("workspaces", 0),
    )
