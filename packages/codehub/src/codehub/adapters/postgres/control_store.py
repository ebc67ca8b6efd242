"""ports.control_store.ControlStore on PostgreSQL."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any

from psycopg.types.json import Jsonb

from codehub.adapters.postgres import timeline
from codehub.adapters.postgres.control_term import as_leader
from codehub.adapters.postgres.pool import Database, Transaction
from codehub.adapters.postgres.rows import conditions_column, home_ctx_column, progress_column, workspace_of
from codehub.domain.model import Progress, Workspace
from codehub.ports.control_store import Change, Versioned
from codehub.ports.homes import ArchiveReceipt

# The condition of every change; an intent also depends on desired_state (contract 8).
_COMMIT = """
    UPDATE workspaces SET
        conditions = %(conditions)s, observed_at = %(observed_at)s, phase = %(phase)s,
        phase_changed_at = %(phase_changed_at)s, operation = %(operation)s, op_started_at = %(op_started_at)s,
        progress = %(progress)s, archive_op_id = %(archive_op_id)s, archive_key = %(archive_key)s,
        home_ctx = %(home_ctx)s, error_reason = %(error_reason)s, error_count = %(error_count)s,
        retry_at = %(retry_at)s, deleted_at = %(deleted_at)s, updated_at = %(now)s
    WHERE id = %(id)s AND operation = %(was_operation)s
        AND archive_op_id IS NOT DISTINCT FROM %(was_archive_op_id)s
        AND archive_key IS NOT DISTINCT FROM %(was_archive_key)s
        AND error_reason IS NOT DISTINCT FROM %(was_error_reason)s
        AND deleted_at IS NOT DISTINCT FROM %(was_deleted_at)s
        AND (NOT %(is_intent)s OR desired_state = %(was_desired_state)s)
    RETURNING *, xmin::text AS version
"""


class PostgresControlStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def versions(self) -> Mapping[str, str]:
        async with self._database.transaction() as tx:
            rows = await (
                await tx.execute("SELECT id, xmin::text AS version FROM workspaces WHERE deleted_at IS NULL")
            ).fetchall()
        return {row["id"]: row["version"] for row in rows}

    async def load(self, ids: Collection[str] | None = None) -> Sequence[Versioned]:
        which = "deleted_at IS NULL" if ids is None else "id = ANY(%s)"
        async with self._database.transaction() as tx:
            rows = await (
                await tx.execute(
                    f"SELECT *, xmin::text AS version FROM workspaces WHERE {which} ORDER BY id",  # noqa: S608
                    [] if ids is None else [list(ids)],
                )
            ).fetchall()
        return [_versioned(row) for row in rows]

    async def commit(self, epoch: int, change: Change, now: datetime) -> Versioned | None:
        async with as_leader(self._database, epoch) as tx:
            row = await (await tx.execute(_COMMIT, _arguments(change, now))).fetchone()
            if row is None:
                return None
            workspace_id = change.before.id
            if change.generation is not None:
                await _note_generation(tx, workspace_id, change.generation, now)
            for event in change.events:
                await timeline.record(
                    tx,
                    workspace_id,
                    at=now,
                    kind=event.kind,
                    message=event.message,
                    actor="codehub",
                    detail=event.detail,
                )
        return _versioned(row)

    async def note_progress(self, epoch: int, workspace: Workspace, progress: Progress) -> None:
        async with as_leader(self._database, epoch) as tx:
            await tx.execute(
                "UPDATE workspaces SET progress = %s WHERE id = %s AND operation = %s"
                " AND op_started_at IS NOT DISTINCT FROM %s",
                [
                    Jsonb(progress_column(progress)),
                    workspace.id,
                    workspace.operation.value,
                    workspace.op_started_at,
                ],
            )

    async def note_observed(self, epoch: int, ids: Collection[str], now: datetime) -> Mapping[str, str]:
        async with as_leader(self._database, epoch) as tx:
            rows = await (
                await tx.execute(
                    "UPDATE workspaces SET observed_at = %s WHERE id = ANY(%s) AND deleted_at IS NULL"
                    " RETURNING id, xmin::text AS version",
                    [now, list(ids)],
                )
            ).fetchall()
        return {row["id"]: row["version"] for row in rows}

    async def restarts_since(self, workspace_id: str, since: datetime) -> int:
        async with self._database.transaction() as tx:
            row = await (
                await tx.execute(
                    "SELECT count(*) AS n FROM workspace_events"
                    " WHERE workspace_id = %s AND kind = 'restarting' AND at >= %s",
                    [workspace_id, since],
                )
            ).fetchone()
        assert row is not None
        return int(row["n"])

    async def note_components(self, epoch: int, components: Mapping[str, Mapping[str, object]]) -> None:
        told = Jsonb({name: dict(said) for name, said in components.items()})
        # Not through `as_leader`: its share lock would have to be raised to an update of the same row.
        async with self._database.transaction() as tx:
            await tx.execute(
                "UPDATE system_locks SET components = %s WHERE lock_name = 'coordinator' AND epoch = %s",
                [told, epoch],
            )


async def _note_generation(tx: Transaction, workspace_id: str, made: ArchiveReceipt, now: datetime) -> None:
    await tx.execute(
        "INSERT INTO workspace_archives (workspace_id, archive_key, op_id, committed_at, bytes, sha256)"
        " VALUES (%s, %s, %s, %s, %s, %s) ON CONFLICT (workspace_id, op_id) DO NOTHING",
        [workspace_id, made.archive_key, made.op_id, now, made.bytes, made.sha256],
    )


def _versioned(row: Mapping[str, Any]) -> Versioned:
    return Versioned(workspace_of(row), row["version"])


def _arguments(change: Change, now: datetime) -> dict[str, object]:
    before, after = change.before, change.after
    ctx, progress = home_ctx_column(after.home_ctx), progress_column(after.progress)
    return {
        "id": before.id,
        "now": now,
        "is_intent": change.is_intent,
        "conditions": Jsonb(conditions_column(after.conditions)),
        "observed_at": after.observed_at,
        "phase": after.phase.value,
        "phase_changed_at": after.phase_changed_at,
        "operation": after.operation.value,
        "op_started_at": after.op_started_at,
        "progress": None if progress is None else Jsonb(progress),
        "archive_op_id": after.archive_op_id,
        "archive_key": after.archive_key,
        "home_ctx": None if ctx is None else Jsonb(ctx),
        "error_reason": after.error_reason.value if after.error_reason else None,
        "error_count": after.error_count,
        "retry_at": after.retry_at,
        "deleted_at": after.deleted_at,
        "was_operation": before.operation.value,
        "was_desired_state": before.desired_state.value,
        "was_archive_op_id": before.archive_op_id,
        "was_archive_key": before.archive_key,
        "was_error_reason": before.error_reason.value if before.error_reason else None,
        "was_deleted_at": before.deleted_at,
    }
