"""ports.control_store.GcStore on PostgreSQL."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta

from codehub.adapters.postgres.control_term import as_leader
from codehub.adapters.postgres.pool import Database
from codehub.adapters.postgres.rows import conditions_of, known
from codehub.domain.gc import Claim
from codehub.domain.model import Conditions, Phase
from codehub.ports.archives import ArchivePlace

# Returns what each of these workspaces still claims: its newest archives, those that others use, and copies in progress.
# The key of an archive begins with the id of the workspace that made it. What others use is collected once for all: for
# each workspace by itself, it would be a search through all of them.
_CLAIMS = """
    WITH used AS (
        SELECT split_part(o.archive_key, '/', 1) AS id, o.id AS user_id, o.archive_key FROM workspaces o
        WHERE o.purged_at IS NULL AND o.archive_key IS NOT NULL
        UNION SELECT split_part(newest.archive_key, '/', 1), copy.id, newest.archive_key
        FROM workspaces copy CROSS JOIN LATERAL (
            SELECT a.archive_key FROM workspace_archives a WHERE a.workspace_id = copy.id
            ORDER BY a.committed_at DESC, a.op_id DESC LIMIT %(keep)s) newest
        WHERE copy.copy_of IS NOT NULL AND copy.purged_at IS NULL
    ), by_others AS (
        SELECT id, array_agg(archive_key) AS keys FROM used WHERE id <> user_id GROUP BY id
    ), copies AS (
        SELECT c.copy_of AS id, array_agg(c.archive_op_id) AS op_ids FROM workspaces c
        WHERE c.copy_of IS NOT NULL AND c.operation = 'DUPLICATING' AND c.archive_op_id IS NOT NULL GROUP BY c.copy_of
    )
    SELECT w.id, w.phase, w.archive_key, w.archive_op_id, w.error_reason, w.conditions, w.deleted_at, w.purged_at, ARRAY(
        SELECT a.op_id FROM workspace_archives a WHERE a.workspace_id = w.id
        ORDER BY a.committed_at DESC, a.op_id DESC LIMIT %(keep)s) AS kept,
        coalesce(by_others.keys, '{}') AS used_by_others, coalesce(copies.op_ids, '{}') AS copying
    FROM workspaces w LEFT JOIN by_others ON by_others.id = w.id LEFT JOIN copies ON copies.id = w.id
    WHERE w.id = ANY(%(ids)s)
"""


# Marks deleted workspaces whose retention is over.
_BEGIN_PURGES = """
    UPDATE workspaces SET purged_at = %(now)s WHERE deleted_at IS NOT NULL AND purged_at IS NULL
        AND %(now)s - deleted_at >= %(retention)s RETURNING id
"""
# Records archives without a workspace, and keeps the time at which each was first seen.
_NOTE_ORPHANS = """
    INSERT INTO archive_orphans (archive_key, workspace_id, op_id, first_seen_at)
    SELECT *, %s FROM unnest(%s::text[], %s::text[], %s::text[]) ON CONFLICT (archive_key) DO NOTHING
"""


class PostgresGcStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def begin_purges(self, epoch: int, now: datetime, retention: timedelta) -> Collection[str]:
        async with as_leader(self._database, epoch) as tx:
            # The UPDATE locks each row and evaluates its condition again under the lock, so a concurrent undelete either
            # wins or loses completely.
            rows = await (await tx.execute(_BEGIN_PURGES, {"now": now, "retention": retention})).fetchall()
        return [row["id"] for row in rows]

    async def claims(self, ids: Collection[str], keep: int) -> Mapping[str, Claim]:
        async with self._database.transaction() as tx:
            rows = await (await tx.execute(_CLAIMS, {"keep": keep, "ids": list(ids)})).fetchall()
        return {
            row["id"]: Claim(
                workspace_id=row["id"],
                phase=Phase.DELETED if row["deleted_at"] is not None else known(Phase, row["phase"], Phase.ERROR),
                archive_key=row["archive_key"],
                archive_op_id=row["archive_op_id"],
                kept=frozenset(row["kept"]),
                error_recorded=row["error_reason"] is not None,
                home_is_seen=_is_seen(conditions_of(row["conditions"])),
                purged_at=row["purged_at"],
                used_by_others=frozenset(row["used_by_others"]),
                copying=frozenset(row["copying"]),
            )
            for row in rows
        }

    async def note_orphans(self, epoch: int, places: Collection[ArchivePlace], now: datetime) -> None:
        keys = [place.archive_key for place in places]
        async with as_leader(self._database, epoch) as tx:
            await tx.execute("DELETE FROM archive_orphans WHERE NOT (archive_key = ANY(%s))", [keys])
            await tx.execute(
                _NOTE_ORPHANS,
                [now, keys, [place.workspace_id for place in places], [place.op_id for place in places]],
            )

    async def orphans(self) -> Sequence[tuple[ArchivePlace, datetime]]:
        async with self._database.transaction() as tx:
            rows = await (await tx.execute("SELECT * FROM archive_orphans ORDER BY archive_key")).fetchall()
        return [
            (ArchivePlace(row["workspace_id"], row["op_id"], row["archive_key"]), row["first_seen_at"])
            for row in rows
        ]

    async def forget_archive(self, epoch: int, place: ArchivePlace) -> None:
        async with as_leader(self._database, epoch) as tx:
            await tx.execute("DELETE FROM archive_orphans WHERE archive_key = %s", [place.archive_key])
            await tx.execute(
                # Matched by key, because copies list the archive as theirs too.
                "DELETE FROM workspace_archives WHERE archive_key = %s",
                [place.archive_key],
            )


def _is_seen(conditions: Conditions) -> bool:
    return conditions.volume_ready.is_true or conditions.archive_ready.is_true
