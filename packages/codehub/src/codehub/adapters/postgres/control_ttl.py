"""ports.control_store.TtlStore on PostgreSQL. Rows are locked, judged by `domain.ttl` and written in one transaction.

These statements write desired_state and last_access_at for the TTL Runner, as `workspaces.py` does for everything else.
They are separate only because they belong to the leader and are fenced by its epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime, timedelta

from psycopg.types.json import Jsonb

from codehub.adapters.postgres.control_term import as_leader
from codehub.adapters.postgres.pool import Database, Transaction
from codehub.adapters.postgres.rows import workspace_of
from codehub.domain.model import Busy, DesiredState, Workspace
from codehub.domain.ttl import ActivityCoverage, Span, archive_ttl, is_to_archive, is_to_sleep, standby_ttl

# Selects a superset of the rows that are due, so that only those are read and locked. `domain.ttl` decides, including
# coverage gaps. Because of the lock, a concurrent access is written after it, and an earlier one is seen.
_COULD_SLEEP = """
    SELECT * FROM workspaces
    WHERE phase = 'RUNNING' AND operation = 'NONE' AND desired_state = 'RUNNING' AND deleted_at IS NULL
        AND greatest(last_access_at, phase_changed_at)
            < %(now)s - make_interval(secs => coalesce((template ->> 'ttl_standby')::float, %(ttl)s))
    ORDER BY id FOR NO KEY UPDATE
"""
# The same for sleeping workspaces that may be archived.
_COULD_BE_ARCHIVED = """
    SELECT * FROM workspaces
    WHERE phase = 'STANDBY' AND operation = 'NONE' AND desired_state = 'STANDBY' AND deleted_at IS NULL
        AND phase_changed_at
            < %(now)s - make_interval(secs => coalesce((template ->> 'ttl_archive')::float, %(ttl)s))
    ORDER BY id FOR NO KEY UPDATE
"""
# Sets desired_state and writes the timeline entry for the ids that `domain.ttl` chose.
_SET_DESIRED = """
    WITH changed AS (
        UPDATE workspaces SET desired_state = %(desired)s, updated_at = %(now)s, busy_reason = NULL, busy_since = NULL,
            busy_at = NULL
        WHERE id = ANY(%(ids)s) RETURNING id
    )
    INSERT INTO workspace_events (workspace_id, at, kind, message, actor, detail)
    SELECT id, %(now)s, %(kind)s, %(message)s, 'ttl', %(detail)s FROM changed
"""

_READ_COVERAGE = "SELECT value FROM system_facts WHERE name = 'activity_coverage'"
# Records since when activity is covered, and the gaps.
_WRITE_COVERAGE = """
    INSERT INTO system_facts (name, value) VALUES ('activity_coverage', %s)
    ON CONFLICT (name) DO UPDATE SET value = EXCLUDED.value
"""
# Never moves last_access_at back: flushes may arrive late and out of order.
_NOTE_ACCESS = """
    UPDATE workspaces SET last_access_at = touched.at
    FROM unnest(%s::text[], %s::timestamptz[]) AS touched (id, at)
    WHERE workspaces.id = touched.id AND (last_access_at IS NULL OR last_access_at < touched.at)
"""


async def read_coverage(tx: Transaction) -> ActivityCoverage:
    row = await (await tx.execute(_READ_COVERAGE)).fetchone()
    if row is None:
        return ActivityCoverage()
    until = row["value"]["until"]
    spans = (Span(datetime.fromisoformat(begin), datetime.fromisoformat(end)) for begin, end in row["value"]["gaps"])
    return ActivityCoverage(datetime.fromisoformat(until) if until else None, tuple(spans))


# Records which workspaces are busy and why. Only rows that changed are written. Busy counts as an access.
_NOTE_BUSY = """
    UPDATE workspaces SET busy_reason = seen.reason, busy_since = seen.since, busy_at = seen.at,
        last_access_at = greatest(last_access_at, seen.at)
    FROM unnest(%s::text[], %s::text[], %s::timestamptz[], %s::timestamptz[]) AS seen (id, reason, since, at)
    WHERE workspaces.id = seen.id
        AND (busy_reason, busy_since, busy_at) IS DISTINCT FROM (seen.reason, seen.since, seen.at)
"""


class PostgresTtlStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def coverage(self) -> ActivityCoverage:
        async with self._database.transaction() as tx:
            return await read_coverage(tx)

    async def record_coverage(self, epoch: int, coverage: ActivityCoverage) -> None:
        value = {
            "until": coverage.until.isoformat() if coverage.until else None,
            "gaps": [[span.begin.isoformat(), span.end.isoformat()] for span in coverage.gaps],
        }
        async with as_leader(self._database, epoch) as tx:
            await tx.execute(_WRITE_COVERAGE, [Jsonb(value)])

    async def note_access(self, epoch: int, times: Mapping[str, datetime]) -> None:
        if not times:
            return
        async with as_leader(self._database, epoch) as tx:
            await tx.execute(_NOTE_ACCESS, [list(times), list(times.values())])

    async def note_busy(self, epoch: int, found: Mapping[str, Busy | None]) -> None:
        if not found:
            return
        async with as_leader(self._database, epoch) as tx:
            await tx.execute(
                _NOTE_BUSY,
                [
                    list(found),
                    [busy.reason if busy else None for busy in found.values()],
                    [busy.since if busy else None for busy in found.values()],
                    [busy.at if busy else None for busy in found.values()],
                ],
            )

    async def idle(self, now: datetime, ttl: timedelta, gaps: Sequence[Span]) -> Sequence[Workspace]:
        async with self._database.transaction() as tx:
            rows = await (await tx.execute(_COULD_SLEEP, {"now": now, "ttl": ttl.total_seconds()})).fetchall()
        return [found for row in rows if is_to_sleep(found := workspace_of(row), now, ttl, gaps)]

    async def put_to_sleep(
        self, epoch: int, now: datetime, ttl: timedelta, gaps: Sequence[Span], unasked: Collection[str] = ()
    ) -> Collection[str]:
        async with as_leader(self._database, epoch) as tx:
            rows = await (await tx.execute(_COULD_SLEEP, {"now": now, "ttl": ttl.total_seconds()})).fetchall()
            idle = (row for each in rows if is_to_sleep(row := workspace_of(each), now, ttl, gaps))
            due = [row for row in idle if row.id not in unasked]
            for own, ids in _by_ttl(due, lambda row: standby_ttl(row, ttl)).items():
                message = f"Put to sleep: nobody worked in it for {own}"
                await _set_desired(tx, ids, DesiredState.STANDBY, now, kind="put_to_sleep", message=message)
        return [row.id for row in due]

    async def put_to_archive(self, epoch: int, now: datetime, ttl: timedelta) -> Collection[str]:
        async with as_leader(self._database, epoch) as tx:
            rows = await (await tx.execute(_COULD_BE_ARCHIVED, {"now": now, "ttl": ttl.total_seconds()})).fetchall()
            due = [row for each in rows if is_to_archive(row := workspace_of(each), now, ttl)]
            for own, ids in _by_ttl(due, lambda row: archive_ttl(row, ttl)).items():
                message = f"To be archived: asleep for {own}"
                await _set_desired(tx, ids, DesiredState.ARCHIVED, now, kind="put_to_archive", message=message)
        return [row.id for row in due]


def _by_ttl(rows: Sequence[Workspace], ttl_of: Callable[[Workspace], timedelta]) -> dict[timedelta, list[str]]:
    found: dict[timedelta, list[str]] = {}
    for row in rows:
        found.setdefault(ttl_of(row), []).append(row.id)
    return found


async def _set_desired(
    tx: Transaction, ids: Sequence[str], desired: DesiredState, now: datetime, *, kind: str, message: str
) -> None:
    if ids:
        detail = Jsonb({"desired_state": desired.value})
        arguments = {"ids": ids, "desired": desired.value, "now": now, "kind": kind, "message": message}
        await tx.execute(_SET_DESIRED, {**arguments, "detail": detail})
