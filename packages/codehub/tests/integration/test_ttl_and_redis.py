"""Idle → asleep → archived → woken, on real PostgreSQL and a real Valkey that is killed, wiped and back on the way.

Time passes by moving what the database remembers into the past: nothing here waits for it.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest
import redis

from codehub.adapters.embedded.valkey import EmbeddedValkey
from codehub.adapters.postgres.pool import Database
from codehub.adapters.redis.activity import KEY, RedisActivity
from codehub.adapters.redis.bus import RedisBus
from codehub.adapters.redis.client import connect
from codehub.control.metrics import Metrics
from codehub.domain.errors import BackendDown
from codehub.domain.model import DesiredState, Operation, Phase, Workspace
from codehub.proxy.activity.buffer import ActivityBuffer
from codehub.proxy.coarse_clock import CoarseClock
from testing.codehub.coordinators import MemoryParts, leading, row_of, settings, until
from testing.codehub.rows import put_workspace
from testing.codehub.workspaces import workspace

ID = workspace().id
STANDBY_S, ARCHIVE_S, FLUSH_S = 600.0, 1800.0, 30.0


class Life:
    """One workspace under a leader whose TTL Runner ticks ten times a second."""

    def __init__(self, database: Database, parts: MemoryParts, metrics: Metrics) -> None:
        self.database = database
        self.parts = parts
        self._metrics = metrics

    async def now(self) -> Workspace:
        return await row_of(self.database, ID)

    async def ticks(self, outcome: str) -> None:
        """Three more of these, the first of which may have begun before now."""
        labels = {"component": "ttl_runner", "outcome": outcome}

        def count() -> float:
            return self._metrics.registry.get_sample_value("codehub_coordinator_ticks_total", labels) or 0.0

        before = count()

        async def more() -> bool:
            return count() >= before + 3

        await until(more, f"three ticks are {outcome}")

    async def reaches(self, phase: Phase) -> None:
        async def there() -> bool:
            row = await self.now()
            return row.phase is phase and row.operation is Operation.NONE

        await until(there, f"it becomes {phase}")

    async def pass_time(self, hours: float, *, unseen: bool = False) -> None:
        """So long ago is now what was; unseen: the TTL Runner's last good tick is too."""
        async with self.database.transaction() as tx:
            await tx.execute(
                "UPDATE workspaces SET last_access_at = last_access_at - %(t)s,"
                " phase_changed_at = phase_changed_at - %(t)s",
                {"t": timedelta(hours=hours)},
            )
            if unseen:
                moved = await tx.execute(
                    "UPDATE system_facts SET value = jsonb_set(value, '{until}',"
                    " to_jsonb((value->>'until')::timestamptz - %s)) WHERE name = 'activity_coverage'",
                    [timedelta(hours=hours)],
                )
                assert moved.rowcount == 1, "the TTL Runner's last good tick is stored under this name"


async def test_nothing_sleeps_unseen_and_nothing_is_lost_while_redis_is_killed_and_wiped(
    database: Database, valkey_server: EmbeddedValkey
) -> None:
    client = connect(valkey_server.url)
    parts, metrics = MemoryParts(), Metrics()
    parts.activity = cast(Any, RedisActivity(client))
    parts.bus = cast(Any, RedisBus(client))
    clock = CoarseClock(time.monotonic, time.time)
    proxy = ActivityBuffer(RedisActivity(client), clock, flush_interval_s=FLUSH_S, shortest_ttl_s=STANDBY_S)
    chosen = settings("node", interval_s=0.1, standby_s=STANDBY_S, archive_s=ARCHIVE_S, flush_interval_s=FLUSH_S)
    life = Life(database, parts, metrics)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(client.aclose)
        await put_workspace(database, replace(workspace(created_at=datetime.now(UTC)), last_access_at=None))
        await stack.enter_async_context(leading(database, parts, chosen, metrics))
        await life.reaches(Phase.RUNNING)
        parts.homes.volumes[ID].files["notes"] = b"kept"

        # Someone works: what the proxy saw becomes last_access_at, and leaves Redis.
        await life.pass_time(0.1)
        proxy.of(ID).touch()
        await proxy.flush()

        async def taken_in() -> bool:
            return (await life.now()).last_access_at is not None and not await client.zcard(KEY)

        await until(taken_in, "the touch is taken in")
        assert (await life.now()).desired_state is DesiredState.RUNNING

        # Redis is killed, and an hour passes in which someone works.
        await asyncio.to_thread(valkey_server.stop)
        await life.ticks("failed")
        await life.pass_time(1, unseen=True)
        proxy.of(ID).quiet_at = 0.0
        clock.tick()
        proxy.of(ID).touch()
        touched = proxy.pending[ID]
        with pytest.raises(BackendDown):
            await proxy.flush()
        await life.ticks("failed")
        assert (await life.now()).desired_state is DesiredState.RUNNING, "nothing sleeps while nothing can be seen"

        # It is back, empty. That hour does not count, and the touch was kept by the proxy.
        await asyncio.to_thread(valkey_server.start)
        with redis.Redis.from_url(valkey_server.url) as direct:
            direct.flushall()
        await life.ticks("ok")
        row = await life.now()
        assert (row.phase, row.desired_state) == (Phase.RUNNING, DesiredState.RUNNING), "unseen time is not idle time"
        await proxy.flush()

        async def remembered() -> bool:
            seen = (await life.now()).last_access_at
            return seen is not None and abs(seen.timestamp() - touched) < 0.001

        await until(remembered, "the touch of that hour is not lost")

        # Then nobody works, and it is seen that nobody does: it sleeps.
        await life.pass_time(3)
        await life.reaches(Phase.STANDBY)
        assert parts.homes.volumes[ID].files == {"notes": b"kept"}

        # Long asleep, with Redis away again: a tick that cannot see does nothing at all.
        await asyncio.to_thread(valkey_server.stop)
        await life.ticks("failed")
        await life.pass_time(2, unseen=True)
        await life.ticks("failed")
        assert (await life.now()).desired_state is DesiredState.STANDBY
        await asyncio.to_thread(valkey_server.start)
        await life.reaches(Phase.ARCHIVED)
        assert parts.homes.volumes == {}

        # Woken: everything is there, and it is not put to sleep at once.
        async with database.transaction() as tx:
            await tx.execute("UPDATE workspaces SET desired_state = 'RUNNING', last_access_at = now()")
        await life.reaches(Phase.RUNNING)
        await life.ticks("ok")
        row = await life.now()
        assert (row.desired_state, row.phase) == (DesiredState.RUNNING, Phase.RUNNING)
        assert parts.homes.volumes[ID].files == {"notes": b"kept"}
        async with database.transaction() as tx:
            reported = await (
                await tx.execute("SELECT kind FROM workspace_events WHERE actor = 'ttl' ORDER BY id")
            ).fetchall()
        assert [line["kind"] for line in reported] == ["put_to_sleep", "put_to_archive"]
