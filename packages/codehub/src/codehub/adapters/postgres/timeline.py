"""Statements on `workspace_events` (the timeline shown to users) and on the archive generations that are kept."""

from __future__ import annotations

import secrets
from collections.abc import Collection, Mapping
from datetime import datetime

from psycopg.types.json import Jsonb

from codehub.adapters.postgres.pool import Transaction
from codehub.domain.history import Generation, TimelineEntry

# How many entries of a workspace are kept, about: a user who repeats a request must not fill the database.
KEPT = 1_000
# One entry in so many makes its workspace's oldest go. By chance: a user who can tell which one it is would let another
# workspace take it.
_TRIM_EVERY = 16
# Adds an entry.
_INSERT = """
    INSERT INTO workspace_events (workspace_id, at, kind, message, actor, detail) VALUES (%s, %s, %s, %s, %s, %s)
"""
# Removes the oldest entries of a workspace beyond those that are kept, some at a time. Recent restarts are counted.
_TRIM = """
    DELETE FROM workspace_events WHERE id IN (
        SELECT id FROM workspace_events WHERE workspace_id = %(id)s
            AND id <= (SELECT id FROM workspace_events WHERE workspace_id = %(id)s ORDER BY id DESC OFFSET %(kept)s LIMIT 1)
            AND NOT (kind = 'restarting' AND at > %(at)s - interval '1 hour')
        ORDER BY id LIMIT %(kept)s)
"""


async def record(
    tx: Transaction,
    workspace_id: str,
    *,
    at: datetime,
    kind: str,
    message: str,
    actor: str,
    detail: Mapping[str, object] | None = None,
) -> None:
    """Add a timeline entry in the transaction that makes the change. Whatever a user requests comes here."""
    arguments = [workspace_id, at, kind, message, actor, Jsonb(dict(detail or {}))]
    await tx.execute(_INSERT, arguments)
    if secrets.randbelow(_TRIM_EVERY) == 0:
        await tx.execute(_TRIM, {"id": workspace_id, "kept": KEPT, "at": at})


# Lists one page of entries, newest first.
_PAGE = """
    SELECT id, at, kind, message, actor, detail FROM workspace_events WHERE workspace_id = %s
    ORDER BY id DESC LIMIT %s OFFSET %s
"""


async def page(tx: Transaction, workspace_id: str, limit: int, offset: int) -> tuple[list[TimelineEntry], int]:
    """Return the entries, newest first."""
    rows = await (await tx.execute(_PAGE, [workspace_id, limit, offset])).fetchall()
    counted = await (
        await tx.execute("SELECT count(*) AS n FROM workspace_events WHERE workspace_id = %s", [workspace_id])
    ).fetchone()
    assert counted is not None
    return [TimelineEntry(**row) for row in rows], int(counted["n"])


# Records an archive, unless it is recorded already.
_ADOPT = """
    INSERT INTO workspace_archives (workspace_id, archive_key, op_id, committed_at, bytes, sha256)
    VALUES (%s, %s, %s, %s, %s, %s) ON CONFLICT DO NOTHING
"""


async def adopt(tx: Transaction, workspace_id: str, found: Collection[Generation]) -> None:
    """Record archives that exist in the store but were not recorded, as ordinary generations."""
    for one in found:
        await tx.execute(_ADOPT, [workspace_id, one.archive_key, one.op_id, one.committed_at, one.bytes, one.sha256])


# Lists the kept archives, newest first.
_GENERATIONS = """
    SELECT archive_key, op_id, committed_at, bytes, sha256 FROM workspace_archives WHERE workspace_id = %s
    ORDER BY committed_at DESC, op_id DESC
"""


async def generations(tx: Transaction, workspace_id: str) -> list[Generation]:
    """Return the kept archives, newest first."""
    rows = await (await tx.execute(_GENERATIONS, [workspace_id])).fetchall()
    return [Generation(**row) for row in rows]


# Copies the record of an archive to another workspace.
_SHARE_ARCHIVE = """
    INSERT INTO workspace_archives (workspace_id, archive_key, op_id, committed_at, bytes, sha256)
    SELECT %s, archive_key, op_id, committed_at, bytes, sha256 FROM workspace_archives
    WHERE workspace_id = %s AND archive_key = %s
"""


async def share_archive(tx: Transaction, workspace_id: str, copy_id: str, archive_key: str) -> None:
    """Record the archive that a copy starts from as one of the copy's generations."""
    await tx.execute(_SHARE_ARCHIVE, [copy_id, workspace_id, archive_key])
