"""Whoever waits for a lock holds none that comes later in the order, so that no two can wait for each other."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

from codehub.adapters.postgres import locks, templates, users
from codehub.adapters.postgres.control_schedule import PostgresScheduleStore
from codehub.adapters.postgres.pool import Database
from codehub.domain.limits import RunningLimits
from codehub.domain.model import DesiredState, Phase
from codehub.domain.schedule import parse_schedule
from testing.codehub.api import Api
from testing.codehub.contracts.control_store import applied, ws
from testing.codehub.rows import put_workspace
from testing.codehub.workspaces import NOW

W = "/api/v1/workspaces"
TEMPLATE = '[templates.web]\nprofile = "code-server"\n'
WAITING = """
    SELECT count(*) AS n FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'
"""


async def until_it_waits(database: Database, task: asyncio.Task[Any]) -> None:
    async with asyncio.timeout(90):
        while True:
            async with database.statement() as tx:
                row = await (await tx.execute(WAITING)).fetchone()
            if row is not None and row["n"]:
                return
            assert not task.done(), "it did not wait for the lock"
            await asyncio.sleep(0.01)


async def test_an_update_that_waits_for_a_push_does_not_hold_its_workspace(api: Api, database: Database) -> None:
    admin = await api.signed_in()
    assert (await admin.post("/api/v1/templates", json={"source": TEMPLATE})).status_code == 201
    made = (await admin.post(W, json={"name": "one", "template": "web", "start": False})).json()
    async with database.transaction() as push:
        await templates.claim(push, "web", api.clock())
        updating = asyncio.create_task(admin.post(f"{W}/{made['id']}:update-template"))
        await until_it_waits(database, updating)
        await templates.push(push, "web", TEMPLATE + "\n", "admin", api.clock())
    assert (await updating).status_code == 202
    assert (await admin.get(f"{W}/{made['id']}")).json()["template"]["pending_version"] == 2


async def test_schedules_that_wait_for_a_user_do_not_hold_the_limit_that_all_need(database: Database) -> None:
    nine = datetime(2026, 11, 16, 9, tzinfo=UTC)  # a Monday
    template = applied(1, schedule=parse_schedule("9:00", jitter=timedelta()))
    state = {"phase": Phase.STANDBY, "desired_state": DesiredState.STANDBY, "template": template, "created_at": NOW}
    for number, owner in ((1, "user-a"), (2, "user-b")):
        await put_workspace(database, ws(number, owner_user_id=owner, **state))
    store, limits = PostgresScheduleStore(database), RunningLimits(2, 100)
    async with database.transaction() as tx:
        row = await (await tx.execute("UPDATE system_locks SET epoch = epoch + 1 RETURNING epoch")).fetchone()
    assert row is not None
    await store.follow_schedules(row["epoch"], nine - timedelta(minutes=1), limits)
    async with database.transaction() as starts:
        assert await users.lock(starts, "user-b")
        following = asyncio.create_task(store.follow_schedules(row["epoch"], nine, limits))
        await until_it_waits(database, following)
        taken = await (
            await starts.execute("SELECT pg_try_advisory_xact_lock(%s) AS taken", [locks.RUNNING_LIMIT])
        ).fetchone()
        assert taken is not None
        assert taken["taken"]
    assert sorted(await following) == [ws(1).id, ws(2).id]
