"""The coordinator's store, in memory and on PostgreSQL, under one suite."""

from __future__ import annotations

import asyncio

import pytest

from codehub.adapters.postgres.control_disk import PostgresDiskStore
from codehub.adapters.postgres.control_gc import PostgresGcStore
from codehub.adapters.postgres.control_schedule import PostgresScheduleStore
from codehub.adapters.postgres.control_store import PostgresControlStore
from codehub.adapters.postgres.control_ttl import PostgresTtlStore
from codehub.adapters.postgres.pool import Database
from codehub.domain.errors import Deposed
from codehub.domain.model import Workspace
from testing.codehub.contracts.control_store import ControlStoreContract, intent, ws
from testing.codehub.contracts.runner_stores import RunnerStoresContract
from testing.codehub.coordinators import TIMEOUT_S
from testing.codehub.memory.database import MemoryDatabase
from testing.codehub.rows import put_workspace
from testing.codehub.workspaces import NOW


class MemoryWorld:
    def __init__(self) -> None:
        self.database = MemoryDatabase()
        self.store = self.ttl = self.gc = self.registry = self.schedule = self.disk = self.database

    async def elect(self) -> int:
        self.database.epoch += 1
        return self.database.epoch

    async def put(self, row: Workspace) -> None:
        self.database.put(row)

    async def kinds(self, workspace_id: str) -> list[str]:
        return [event.kind for _, event in self.database.events.get(workspace_id, [])]


class PostgresWorld:
    def __init__(self, database: Database) -> None:
        self.database = database
        self.store = self.registry = PostgresControlStore(database)
        self.ttl = PostgresTtlStore(database)
        self.gc = PostgresGcStore(database)
        self.schedule = PostgresScheduleStore(database)
        self.disk = PostgresDiskStore(database)

    async def elect(self) -> int:
        async with self.database.transaction() as tx:
            row = await (await tx.execute("UPDATE system_locks SET epoch = epoch + 1 RETURNING epoch")).fetchone()
        assert row is not None
        return int(row["epoch"])

    async def put(self, row: Workspace) -> None:
        await put_workspace(self.database, row)

    async def kinds(self, workspace_id: str) -> list[str]:
        async with self.database.transaction() as tx:
            rows = await (
                await tx.execute(
                    "SELECT kind FROM workspace_events WHERE workspace_id = %s ORDER BY id", [workspace_id]
                )
            ).fetchall()
        return [row["kind"] for row in rows]


class TestInMemory(ControlStoreContract, RunnerStoresContract):
    @pytest.fixture
    def world(self) -> MemoryWorld:
        return MemoryWorld()


class TestOnPostgres(ControlStoreContract, RunnerStoresContract):
    @pytest.fixture
    def world(self, database: Database) -> PostgresWorld:
        return PostgresWorld(database)


async def _waits_for_a_lock(database: Database) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        while True:
            async with database.transaction() as tx:
                rows = await (
                    await tx.execute(
                        "SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
                    )
                ).fetchall()
            if rows:
                return
            await asyncio.sleep(0.01)


async def test_a_commit_that_waited_for_the_next_leaders_increment_is_refused(database: Database) -> None:
    """Its snapshot is older than the increment: what counts is the row as it is once it is locked."""
    world = PostgresWorld(database)
    epoch = await world.elect()
    await world.put(ws())
    async with database.transaction() as tx:
        await tx.execute("UPDATE system_locks SET epoch = epoch + 1")
        late = asyncio.create_task(world.store.commit(epoch, intent(ws()), NOW))
        await _waits_for_a_lock(database)
    with pytest.raises(Deposed, match=f"epoch {epoch} is over: the database is at {epoch + 1}"):
        await late
    assert (await world.store.load())[0].workspace == ws()
    assert await world.kinds(ws().id) == []


async def test_a_commit_that_waited_for_a_users_change_looks_at_the_row_again(database: Database) -> None:
    world = PostgresWorld(database)
    epoch = await world.elect()
    await world.put(ws())
    async with database.transaction() as tx:
        await tx.execute("UPDATE workspaces SET desired_state = 'DELETED'")
        waiting = asyncio.create_task(world.store.commit(epoch, intent(ws()), NOW))
        await _waits_for_a_lock(database)
    assert await waiting is None, "INV-8: an intent depends on the desired_state it was planned for"
    assert await world.kinds(ws().id) == []


async def test_the_next_leader_waits_for_a_commit_that_is_under_way(database: Database) -> None:
    world = PostgresWorld(database)
    epoch = await world.elect()
    await world.put(ws())
    async with database.transaction() as tx:
        await tx.execute("SELECT FROM workspaces FOR UPDATE")
        committing = asyncio.create_task(world.store.commit(epoch, intent(ws()), NOW))
        await _waits_for_a_lock(database)
        electing = asyncio.create_task(world.elect())
        done, _ = await asyncio.wait([electing], timeout=0.2)
        assert not done, "the share lock is held from before the row is looked at until the commit"
    assert await committing is not None
    assert await electing == epoch + 1
