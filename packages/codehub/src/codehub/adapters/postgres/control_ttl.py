"""ports.control_store.TtlStore on PostgreSQL. Each step is one statement whose WHERE is the rule (docs/control-plane.md).

These write desired_state and last_access_at for the TTL Runner, as `workspaces.py` does for everybody else: apart from it
only because they are the leader's, and fenced by its epoch.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

from psycopg.types.json import Jsonb

from codehub.adapters.postgres.control_term import as_leader
from codehub.adapters.postgres.pool import Database
from codehub.adapters.postgres.rows import workspace_of
from codehub.domain.model import Busy, Workspace
from codehub.domain.ttl import ActivityCoverage, Span

_FACT: Final = "activity_coverage"

# domain.ttl.is_to_sleep, in SQL. Blind spans never overlap, so their parts since then may be added up.
_IS_TO_SLEEP = """
    deleted_at IS NULL AND phase = 'RUNNING' AND operation = 'NONE' AND desired_state = 'RUNNING'
    AND (keep_awake_until IS NULL OR keep_awake_until <= %(now)s)
    AND %(now)s - greatest(last_access_at, phase_changed_at) - (
        SELECT coalesce(sum(greatest(interval '0',
            least(ended, %(now)s) - greatest(begun, greatest(last_access_at, phase_changed_at)))), interval '0')
        FROM unnest(%(begun)s::timestamptz[], %(ended)s::timestamptz[]) AS gaps (begun, ended)
    ) > %(ttl)s
"""
_SLEEP = f"""
    WITH slept AS (
        UPDATE workspaces SET desired_state = 'STANDBY', updated_at = %(now)s, busy_reason = NULL, busy_since = NULL,
            busy_at = NULL WHERE {_IS_TO_SLEEP} RETURNING id
    ), told AS (
        INSERT INTO workspace_events (workspace_id, at, kind, message, actor, detail)
        SELECT id, %(now)s, 'put_to_sleep', %(message)s, 'ttl', '{{"desired_state": "STANDBY"}}' FROM slept
    )
    SELECT id FROM slept
"""  # noqa: S608
_ARCHIVE = """
    WITH archived AS (
        UPDATE workspaces SET desired_state = 'ARCHIVED', updated_at = %(now)s
        WHERE deleted_at IS NULL AND phase = 'STANDBY' AND operation = 'NONE' AND desired_state = 'STANDBY'
            AND %(now)s - phase_changed_at > %(ttl)s
        RETURNING id
    ), told AS (
        INSERT INTO workspace_events (workspace_id, at, kind, message, actor, detail)
        SELECT id, %(now)s, 'put_to_archive', %(message)s, 'ttl', '{"desired_state": "ARCHIVED"}' FROM archived
    )
    SELECT id FROM archived
"""


class PostgresTtlStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def coverage(self) -> ActivityCoverage:
        async with self._database.transaction() as tx:
            row = await (await tx.execute("SELECT value FROM system_facts WHERE name = %s", [_FACT])).fetchone()
        if row is None:
            return ActivityCoverage()
        until = row["value"]["until"]
        spans = (
            Span(datetime.fromisoformat(begin), datetime.fromisoformat(end)) for begin, end in row["value"]["gaps"]
        )
        return ActivityCoverage(datetime.fromisoformat(until) if until else None, tuple(spans))

    async def record_coverage(self, epoch: int, coverage: ActivityCoverage) -> None:
        value = {
            "until": coverage.until.isoformat() if coverage.until else None,
            "gaps": [[span.begin.isoformat(), span.end.isoformat()] for span in coverage.gaps],
        }
        async with as_leader(self._database, epoch) as tx:
            await tx.execute(
                "INSERT INTO system_facts (name, value) VALUES (%s, %s)"
                " ON CONFLICT (name) DO UPDATE SET value = EXCLUDED.value",
                [_FACT, Jsonb(value)],
            )

    async def note_access(self, epoch: int, times: Mapping[str, datetime]) -> None:
        if not times:
            return
        async with as_leader(self._database, epoch) as tx:
            await tx.execute(
                "UPDATE workspaces SET last_access_at = touched.at"
                " FROM unnest(%s::text[], %s::timestamptz[]) AS touched (id, at)"
                " WHERE workspaces.id = touched.id AND (last_access_at IS NULL OR last_access_at < touched.at)",
                [list(times), list(times.values())],
            )

    async def note_busy(self, epoch: int, found: Mapping[str, Busy | None]) -> None:
        if not found:
            return
        async with as_leader(self._database, epoch) as tx:
            await tx.execute(
                "UPDATE workspaces SET busy_reason = seen.reason, busy_since = seen.since, busy_at = seen.at,"
                " last_access_at = greatest(last_access_at, seen.at)"
                " FROM unnest(%s::text[], %s::text[], %s::timestamptz[], %s::timestamptz[]) AS seen (id, reason, since, at)"
                " WHERE workspaces.id = seen.id AND (busy_reason, busy_since, busy_at)"
                " IS DISTINCT FROM (seen.reason, seen.since, seen.at)",
                [
                    list(found),
                    [busy.reason if busy else None for busy in found.values()],
                    [busy.since if busy else None for busy in found.values()],
                    [busy.at if busy else None for busy in found.values()],
                ],
            )

    async def idle(self, now: datetime, ttl: timedelta, gaps: Sequence[Span]) -> Sequence[Workspace]:
        async with self._database.transaction() as tx:
            rows = await (
                await tx.execute(
                    f"SELECT * FROM workspaces WHERE {_IS_TO_SLEEP}",  # noqa: S608
                    _arguments(now, ttl, gaps),
                )
            ).fetchall()
        return [workspace_of(row) for row in rows]

    async def put_to_sleep(self, epoch: int, now: datetime, ttl: timedelta, gaps: Sequence[Span]) -> Collection[str]:
        message = f"Put to sleep: nobody worked in it for {ttl}"
        async with as_leader(self._database, epoch) as tx:
            rows = await (await tx.execute(_SLEEP, {**_arguments(now, ttl, gaps), "message": message})).fetchall()
        return [row["id"] for row in rows]

    async def put_to_archive(self, epoch: int, now: datetime, ttl: timedelta) -> Collection[str]:
        message = f"To be archived: asleep for {ttl}"
        async with as_leader(self._database, epoch) as tx:
            rows = await (await tx.execute(_ARCHIVE, {"now": now, "ttl": ttl, "message": message})).fetchall()
        return [row["id"] for row in rows]


def _arguments(now: datetime, ttl: timedelta, gaps: Sequence[Span]) -> dict[str, object]:
    return {
        "now": now,
        "ttl": ttl,
        "begun": [span.begin for span in gaps],
        "ended": [span.end for span in gaps],
    }
