"""ports.control_store.DiskStore on PostgreSQL. The rule is `domain.disk`."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta

from codehub.adapters.postgres.control_term import as_leader
from codehub.adapters.postgres.pool import Database
from codehub.adapters.postgres.rows import workspace_of
from codehub.domain.disk import is_to_measure
from codehub.domain.model import Workspace

# A superset, so that only those are read; `domain.disk` decides.
_COULD_BE_MEASURED = """
    SELECT * FROM workspaces
    WHERE home_ctx IS NOT NULL AND deleted_at IS NULL AND operation = 'NONE' AND phase IN ('RUNNING', 'STANDBY')
        AND id <> ALL(%(without)s::text[])
        AND (disk_checked_at IS NULL
            OR (disk_checked_at <= %(before)s AND (phase = 'RUNNING' OR phase_changed_at >= disk_checked_at)))
    ORDER BY disk_checked_at NULLS FIRST, id LIMIT %(most)s
"""
# Only while it is the same home: one that was archived meanwhile has no size on disk.
_NOTE = """
    UPDATE workspaces SET disk_bytes = %(used)s, disk_checked_at = %(now)s
    WHERE id = %(id)s AND home_ctx ->> 'incarnation' = %(incarnation)s
"""


class PostgresDiskStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def to_measure(
        self, now: datetime, every: timedelta, most: int, *, without: Collection[str] = ()
    ) -> Sequence[Workspace]:
        values = {"before": now - every, "most": most, "without": list(without)}
        async with self._database.statement() as connection:
            rows = await (await connection.execute(_COULD_BE_MEASURED, values)).fetchall()
        return [one for one in map(workspace_of, rows) if is_to_measure(one, now, every)]

    async def note_disk(self, epoch: int, workspace: Workspace, used: int | None, now: datetime) -> None:
        incarnation = workspace.home_ctx.incarnation if workspace.home_ctx is not None else None
        async with as_leader(self._database, epoch) as tx:
            await tx.execute(_NOTE, {"id": workspace.id, "used": used, "now": now, "incarnation": incarnation})
