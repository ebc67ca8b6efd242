"""ports.control_store.ControlStore on PostgreSQL."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any

from psycopg.types.json import Jsonb

from codehub.adapters.postgres.control_term import as_leader, fenced
from codehub.adapters.postgres.pool import Database
from codehub.adapters.postgres.rows import (
    blocked_column,
    conditions_column,
    home_ctx_column,
    progress_column,
    workspace_of,
)
from codehub.domain.model import Operation, Progress, Workspace
from codehub.domain.stores import StoreRecord
from codehub.ports.control_store import Change, Versioned

# A complete commit in one statement and therefore one round trip: the fence, the conditional change and its timeline
# entries. An intent also depends on desired_state (INV-8). The intent to start applies the template's update and the
# image of devcontainer.json as they are at that moment.
_COMMIT = """
    WITH term AS (
        SELECT FROM system_locks WHERE lock_name = 'coordinator' AND epoch = %(epoch)s FOR SHARE
    ), moved AS (
        UPDATE workspaces SET
            conditions = %(conditions)s, observed_at = %(observed_at)s, phase = %(phase)s,
            phase_changed_at = %(phase_changed_at)s, operation = %(operation)s, op_started_at = %(op_started_at)s,
            progress = %(progress)s, archive_op_id = %(archive_op_id)s, archive_key = %(archive_key)s,
            home_ctx = %(home_ctx)s, error_reason = %(error_reason)s, error_count = %(error_count)s,
            error_message = %(error_message)s, blocked = %(blocked)s,
            retry_at = %(retry_at)s, deleted_at = %(deleted_at)s, updated_at = %(now)s,
            image_ref = CASE WHEN %(starts)s THEN coalesce(template_next ->> 'image_ref', image_ref) ELSE image_ref END,
            template = CASE WHEN %(starts)s THEN coalesce(template_next, template) ELSE template END,
            template_next = CASE WHEN %(starts)s THEN NULL ELSE template_next END,
            dev_image = CASE WHEN %(starts)s THEN coalesce(dev_image_next, dev_image) ELSE dev_image END,
            dev_image_auto = dev_image_auto AND NOT (%(starts)s AND dev_image_next IS NOT NULL),
            dev_image_next = CASE WHEN %(starts)s THEN NULL ELSE dev_image_next END
        WHERE EXISTS (SELECT FROM term) AND id = %(id)s AND operation = %(was_operation)s
            AND archive_op_id IS NOT DISTINCT FROM %(was_archive_op_id)s
            AND archive_key IS NOT DISTINCT FROM %(was_archive_key)s
            AND error_reason IS NOT DISTINCT FROM %(was_error_reason)s
            AND deleted_at IS NOT DISTINCT FROM %(was_deleted_at)s
            AND (NOT %(is_intent)s OR desired_state = %(was_desired_state)s)
        RETURNING *, xmin::text AS version
    ), recorded AS (
        INSERT INTO workspace_events (workspace_id, at, kind, message, actor, detail)
        SELECT moved.id, %(now)s, event.kind, event.message, 'codehub', event.detail
        FROM moved, jsonb_to_recordset(%(events)s) AS event (kind text, message text, detail jsonb)
    ), made AS (
        INSERT INTO workspace_archives (workspace_id, archive_key, op_id, committed_at, bytes, sha256)
        SELECT moved.id, made.archive_key, made.op_id, %(now)s, made.bytes, made.sha256
        FROM moved, jsonb_to_recordset(%(generations)s) AS made (archive_key text, op_id text, bytes bigint, sha256 text)
        ON CONFLICT (workspace_id, op_id) DO NOTHING
    )
    SELECT EXISTS (SELECT FROM term) AS leads, moved.* FROM (SELECT) AS always LEFT JOIN moved ON true
"""
# Fenced in the same way. Progress means that nothing blocks the operation any more.
_PROGRESS = """
    WITH term AS (
        SELECT FROM system_locks WHERE lock_name = 'coordinator' AND epoch = %(epoch)s FOR SHARE
    ), moved AS (
        UPDATE workspaces SET progress = %(progress)s, blocked = NULL
        WHERE EXISTS (SELECT FROM term) AND id = %(id)s AND operation = %(operation)s
            AND op_started_at IS NOT DISTINCT FROM %(op_started_at)s
    )
    SELECT EXISTS (SELECT FROM term) AS leads
"""
# Stores are facts named `store.KIND`.
_STORES = """
    SELECT substr(name, 7) AS kind, value ->> 'id' AS id, value ->> 'place' AS place
    FROM system_facts WHERE name IN ('store.homes', 'store.archives')
"""
# A coordinator that refuses to lead repeats it every few seconds. Those of a day ago never came back.
_FORGET_REFUSALS = """
    DELETE FROM system_facts WHERE starts_with(name, 'refuses_to_lead.')
        AND (name = %s OR (value ->> 'at')::timestamptz < now() - interval '1 day')
"""
# Records why this coordinator refuses to lead.
_NOTE_REFUSAL = """
    INSERT INTO system_facts (name, value) VALUES (%s, jsonb_build_object('why', %s::text, 'at', now()))
    ON CONFLICT (name) DO UPDATE SET value = EXCLUDED.value
"""
# Lists workspaces whose homes a store should hold. Newest first: the newest row is the least likely to be a leftover of
# something that was moved.
_IN_HOMES = """
    SELECT * FROM workspaces WHERE deleted_at IS NULL AND storage_backend = 'local-dir' AND home_ctx IS NOT NULL
        AND error_reason IS DISTINCT FROM 'DataLost' ORDER BY id DESC LIMIT %s
"""
# The same for archives.
_IN_ARCHIVES = """
    SELECT * FROM workspaces WHERE deleted_at IS NULL AND archive_key IS NOT NULL
        AND error_reason IS DISTINCT FROM 'DataLost' ORDER BY id DESC LIMIT %s
"""


_LOAD_LIVE = "SELECT *, xmin::text AS version FROM workspaces WHERE deleted_at IS NULL ORDER BY id"
_LOAD = "SELECT *, xmin::text AS version FROM workspaces WHERE id = ANY(%s) ORDER BY id"
# Records when these workspaces were last observed, and returns their new versions.
_NOTE_OBSERVED = """
    UPDATE workspaces SET observed_at = %s WHERE id = ANY(%s) AND deleted_at IS NULL
    RETURNING id, xmin::text AS version
"""
# Returns the digest of one archive of a workspace.
_ARCHIVE_DIGEST = "SELECT sha256 FROM workspace_archives WHERE workspace_id = %s AND archive_key = %s"
# Counts the restarts of a workspace since a time.
_RESTARTS_SINCE = """
    SELECT count(*) AS n FROM workspace_events
    WHERE workspace_id = %s AND kind = 'restarting' AND at >= %s
"""
# Records the identity of a store, and replaces an earlier one.
_RECORD_STORE = """
    INSERT INTO system_facts (name, value) VALUES (%s, %s)
    ON CONFLICT (name) DO UPDATE SET value = EXCLUDED.value
"""


class PostgresControlStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def versions(self) -> Mapping[str, str]:
        async with self._database.statement() as connection:
            rows = await (
                await connection.execute("SELECT id, xmin::text AS version FROM workspaces WHERE deleted_at IS NULL")
            ).fetchall()
        return {row["id"]: row["version"] for row in rows}

    async def load(self, ids: Collection[str] | None = None) -> Sequence[Versioned]:
        async with self._database.statement() as connection:
            rows = await (
                await (connection.execute(_LOAD_LIVE) if ids is None else connection.execute(_LOAD, [list(ids)]))
            ).fetchall()
        return [_versioned(row) for row in rows]

    async def commit(self, epoch: int, change: Change, now: datetime) -> Versioned | None:
        row = await fenced(self._database, epoch, _COMMIT, _arguments(change, now))
        return None if row["id"] is None else _versioned(row)

    async def note_progress(self, epoch: int, workspace: Workspace, progress: Progress) -> None:
        values = {
            "id": workspace.id,
            "operation": workspace.operation.value,
            "op_started_at": workspace.op_started_at,
            "progress": Jsonb(progress_column(progress)),
        }
        await fenced(self._database, epoch, _PROGRESS, values)

    async def note_observed(self, epoch: int, ids: Collection[str], now: datetime) -> Mapping[str, str]:
        async with as_leader(self._database, epoch) as tx:
            rows = await (await tx.execute(_NOTE_OBSERVED, [now, list(ids)])).fetchall()
        return {row["id"]: row["version"] for row in rows}

    async def archive_digest(self, workspace_id: str, archive_key: str) -> str | None:
        async with self._database.statement() as connection:
            row = await (await connection.execute(_ARCHIVE_DIGEST, [workspace_id, archive_key])).fetchone()
        return None if row is None else str(row["sha256"])

    async def restarts_since(self, workspace_id: str, since: datetime) -> int:
        async with self._database.transaction() as tx:
            row = await (await tx.execute(_RESTARTS_SINCE, [workspace_id, since])).fetchone()
        assert row is not None
        return int(row["n"])

    async def store_records(self) -> Mapping[str, StoreRecord]:
        async with self._database.statement() as connection:
            rows = await (await connection.execute(_STORES)).fetchall()
        return {row["kind"]: StoreRecord(row["id"], row["place"]) for row in rows}

    async def record_store(self, epoch: int, kind: str, record: StoreRecord) -> None:
        async with as_leader(self._database, epoch) as tx:
            await tx.execute(_RECORD_STORE, [f"store.{kind}", Jsonb(asdict(record))])

    async def store_evidence(self, kind: str, most: int) -> Sequence[Workspace]:
        statement = _IN_ARCHIVES if kind == "archives" else _IN_HOMES
        async with self._database.statement() as connection:
            rows = await (await connection.execute(statement, [most])).fetchall()
        return [workspace_of(row) for row in rows]

    async def note_refusal(self, node_id: str, why: str) -> None:
        name = f"refuses_to_lead.{node_id}"
        async with self._database.transaction() as tx:
            if why:
                await tx.execute(_NOTE_REFUSAL, [name, why])
            else:
                await tx.execute(_FORGET_REFUSALS, [name])

    async def note_components(self, epoch: int, components: Mapping[str, Mapping[str, object]]) -> None:
        heartbeats = Jsonb({name: dict(heartbeat) for name, heartbeat in components.items()})
        # Not through `as_leader`: its share lock would have to be upgraded to update the same row. One statement, which
        # commits by itself: frozen between it and a COMMIT, this leader would hold the row, and no other could ever lead.
        async with self._database.statement() as connection:
            await connection.execute(
                "UPDATE system_locks SET components = %s WHERE lock_name = 'coordinator' AND epoch = %s",
                [heartbeats, epoch],
            )


def _versioned(row: Mapping[str, Any]) -> Versioned:
    return Versioned(workspace_of(row), row["version"])


def _arguments(change: Change, now: datetime) -> dict[str, object]:
    before, after = change.before, change.after
    ctx, progress, made = home_ctx_column(after.home_ctx), progress_column(after.progress), change.generation
    return {
        "id": before.id,
        "now": now,
        "is_intent": change.is_intent,
        "starts": change.is_intent and after.operation is Operation.STARTING,
        "events": Jsonb([{"kind": e.kind, "message": e.message, "detail": dict(e.detail)} for e in change.events]),
        "generations": Jsonb([] if made is None else [asdict(made)]),
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
        "error_message": after.error_message,
        "blocked": None if after.blocked is None else Jsonb(blocked_column(after.blocked)),
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
