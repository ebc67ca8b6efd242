"""The coordinator's store, in memory and on PostgreSQL, under one suite."""

from __future__ import annotations

import pytest

from codehub.adapters.memory.database import MemoryDatabase
from codehub.adapters.postgres.control_gc import PostgresGcStore
from codehub.adapters.postgres.control_store import PostgresControlStore
from codehub.adapters.postgres.control_ttl import PostgresTtlStore
from codehub.adapters.postgres.pool import Database
from codehub.domain.model import Workspace
from testing.contracts.control_store import ControlStoreContract
from testing.rows import put_workspace


class MemoryWorld:
    def __init__(self) -> None:
        self.database = MemoryDatabase()
        self.store = self.ttl = self.gc = self.database

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
        self.store = PostgresControlStore(database)
        self.ttl = PostgresTtlStore(database)
        self.gc = PostgresGcStore(database)

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


class TestInMemory(ControlStoreContract):
    @pytest.fixture
    def world(self) -> MemoryWorld:
        return MemoryWorld()


class TestOnPostgres(ControlStoreContract):
    @pytest.fixture
    def world(self, database: Database) -> PostgresWorld:
        return PostgresWorld(database)
