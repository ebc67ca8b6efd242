"""ports.control_store.ScheduleStore on PostgreSQL. The rule is `domain.follow_schedule`.

Rows are locked, judged and written in one transaction, together with the time up to which schedules were followed. So
each start happens once or not at all.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

from psycopg.types.json import Jsonb

from codehub.adapters.postgres import locks, timeline, workspaces
from codehub.adapters.postgres.control_term import as_leader
from codehub.adapters.postgres.pool import Database, Transaction
from codehub.adapters.postgres.rows import workspace_of
from codehub.domain.errors import LimitExceeded
from codehub.domain.follow_schedule import scheduled_state
from codehub.domain.limits import RunningLimits
from codehub.domain.model import DesiredState, Workspace

# Lists live workspaces with a schedule, of users who are not disabled.
_SCHEDULED = """
    SELECT w.*, u.time_zone FROM workspaces w JOIN users u ON u.id = w.owner_user_id
    WHERE w.template ? 'schedule' AND w.deleted_at IS NULL AND u.disabled_at IS NULL ORDER BY w.id
"""
# Locks users in the order of their ids, as every statement does that locks several.
_LOCK_OWNERS = "SELECT 1 FROM users WHERE id = ANY(%s) ORDER BY id FOR NO KEY UPDATE"
_READ = "SELECT value FROM system_facts WHERE name = 'schedules_followed'"
# Records up to when schedules were followed.
_WRITE = """
    INSERT INTO system_facts (name, value) VALUES ('schedules_followed', %s)
    ON CONFLICT (name) DO UPDATE SET value = EXCLUDED.value
"""


class PostgresScheduleStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def follow_schedules(self, epoch: int, now: datetime, limits: RunningLimits) -> Collection[str]:
        async with as_leader(self._database, epoch) as tx:
            row = await (await tx.execute(_READ)).fetchone()
            since = datetime.fromisoformat(row["value"]) if row is not None else None
            found = await (await tx.execute(_SCHEDULED)).fetchall()
            due = [
                (each["id"], each["time_zone"], each["owner_user_id"])
                for each in found
                if scheduled_state(workspace_of(each), each["time_zone"], since, now) is not None
            ]
            if due:
                # In the lock order that all writers use: all owners before the limit, and that before any workspace.
                await tx.execute(_LOCK_OWNERS, [sorted({owner for _, _, owner in due})])
                await tx.execute("SELECT pg_advisory_xact_lock(%s)", [locks.RUNNING_LIMIT])
            changed = [id_ for id_, zone, _ in due if await self._follow(tx, id_, zone, since, now, limits)]
            await tx.execute(_WRITE, [Jsonb(now.isoformat())])
        return changed

    async def _follow(
        self, tx: Transaction, id_: str, zone: str, since: datetime | None, now: datetime, limits: RunningLimits
    ) -> bool:
        """Judge again with the row locked."""
        workspace = await workspaces.lock(tx, id_)
        desired = None if workspace is None else scheduled_state(workspace, zone, since, now)
        if workspace is None or desired is None:
            return False
        if desired is DesiredState.RUNNING and not await self._has_slot(tx, workspace, now, limits):
            return False
        await workspaces.set_desired_state(tx, id_, desired, now)
        message = "Started by its schedule" if desired is DesiredState.RUNNING else "Put to sleep by its schedule"
        await timeline.record(tx, id_, at=now, kind="schedule", message=message, actor="schedule")
        return True

    async def _has_slot(self, tx: Transaction, workspace: Workspace, now: datetime, limits: RunningLimits) -> bool:
        try:
            await workspaces.take_running_slot(tx, workspace.owner_user_id, workspace.id, limits)
        except LimitExceeded as error:
            message = f"Not started by its schedule: {error}"
            await timeline.record(tx, workspace.id, at=now, kind="schedule", message=message, actor="schedule")
            return False
        return True
