"""What a workspace waits for is shown on its row and in the coordinator's health, and it continues by itself."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from codehub.adapters.postgres import system
from codehub.adapters.postgres.pool import Database
from codehub.control.metrics import Metrics
from codehub.domain.model import DesiredState, ErrorReason, Operation, Phase, Workspace
from testing.codehub.coordinators import LOCK_ID, MemoryParts, leading, row_of, until
from testing.codehub.rows import put_workspace
from testing.codehub.workspaces import workspace

ID = workspace().id


async def put(database: Database, desired: DesiredState = DesiredState.RUNNING) -> None:
    now = datetime.now(UTC)
    await put_workspace(database, replace(workspace(created_at=now, desired=desired), last_access_at=now))


async def blocked(database: Database) -> Workspace:
    async def there() -> bool:
        return (await row_of(database, ID)).blocked is not None

    await until(there, "the row says what it waits for")
    return await row_of(database, ID)


async def reaches(database: Database, phase: Phase) -> Workspace:
    async def there() -> bool:
        row = await row_of(database, ID)
        return row.phase is phase and row.operation is Operation.NONE

    await until(there, f"it becomes {phase}")
    return await row_of(database, ID)


async def kinds(database: Database) -> list[str]:
    async with database.transaction() as tx:
        rows = await (await tx.execute("SELECT kind FROM workspace_events ORDER BY id")).fetchall()
    return [row["kind"] for row in rows]


async def test_a_full_disk_is_named_and_tried_again_until_there_is_room(database: Database) -> None:
    parts = MemoryParts()
    parts.homes.full = "/srv/homes"
    await put(database)
    async with leading(database, parts):
        row = await blocked(database)
        assert row.blocked is not None
        assert (row.blocked.reason, row.error_reason, row.operation) == (
            ErrorReason.OUT_OF_SPACE,
            None,
            Operation.PROVISIONING,
        )
        assert "/srv/homes" in row.blocked.message
        since = row.blocked.since

        async def tried_again() -> bool:
            now = await row_of(database, ID)
            return now.retry_at is not None and row.retry_at is not None and now.retry_at > row.retry_at

        await until(tried_again, "it is tried again while it lasts")
        still = await row_of(database, ID)
        assert still.phase is not Phase.ERROR
        assert still.blocked is not None
        assert still.blocked.since == since
        assert (await kinds(database)).count("blocked") == 1
        parts.homes.full = ""
        assert (await reaches(database, Phase.RUNNING)).blocked is None


@pytest.mark.parametrize("backend", ["process", "local-dir"])
async def test_a_dead_backend_is_named_on_the_card_in_the_health_answer_in_the_metrics_and_in_the_timeline(
    database: Database, backend: str
) -> None:
    parts, metrics = MemoryParts(), Metrics()
    dead = parts.instances if backend == "process" else parts.homes
    dead.away = True
    await put(database)
    async with leading(database, parts, metrics=metrics):
        row = await blocked(database)
        assert row.blocked is not None
        assert row.blocked.reason is ErrorReason.UNREACHABLE
        assert row.blocked.message.startswith(f"{backend} does not answer since ")
        assert row.phase is not Phase.ERROR
        assert "blocked" in await kinds(database)

        async def said() -> bool:
            async with database.transaction() as tx:
                components = (await system.leadership(tx, LOCK_ID)).components
            error = components.get("workspace_controller", {}).get("last_error")
            return error is not None and f"{backend} does not answer since" in error

        await until(said, "the controller says so in its last_error")
        assert f'codehub_coordinator_backend_up{{backend="{backend}"}} 0.0'.encode() in metrics.render()
        dead.away = False
        assert (await reaches(database, Phase.RUNNING)).blocked is None
        assert f'codehub_coordinator_backend_up{{backend="{backend}"}} 1.0'.encode() in metrics.render()


async def test_an_archive_store_that_is_away_while_a_home_is_archived_is_reported_and_waited_for(
    database: Database,
) -> None:
    parts = MemoryParts()
    await put(database, DesiredState.STANDBY)
    async with leading(database, parts):
        await reaches(database, Phase.STANDBY)
        parts.archives.away = True
        async with database.transaction() as tx:
            await tx.execute("UPDATE workspaces SET desired_state = 'ARCHIVED'")
        row = await blocked(database)
        assert row.blocked is not None
        assert (row.blocked.reason, row.operation) == (ErrorReason.UNREACHABLE, Operation.ARCHIVING)
        parts.archives.away = False
        assert (await reaches(database, Phase.ARCHIVED)).blocked is None
