"""What a deposed coordinator still knows of a workspace's setup is old: it changes nothing."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from codehub.adapters.postgres import setup_links
from codehub.adapters.postgres.pool import Database
from codehub.domain.errors import Deposed
from codehub.domain.model import DesiredState, Phase
from codehub.domain.profiles import Runs
from codehub.domain.setup import SetupState
from codehub.services.setup_desk import PostgresSetupDesk
from codehub.wiring import new_id
from testing.codehub.coordinators import row_of
from testing.codehub.rows import put_workspace
from testing.codehub.workspaces import workspace


async def elect(database: Database) -> int:
    async with database.transaction() as tx:
        row = await (
            await tx.execute(
                "UPDATE system_locks SET epoch = epoch + 1 WHERE lock_name = 'coordinator' RETURNING epoch"
            )
        ).fetchone()
    assert row is not None
    return int(row["epoch"])


async def test_a_deposed_coordinator_neither_links_an_old_start_nor_records_an_old_state(database: Database) -> None:
    row = replace(
        workspace(new_id(), created_at=datetime.now(UTC)), phase=Phase.RUNNING, desired_state=DesiredState.RUNNING
    )
    await put_workspace(database, row)
    desk = PostgresSetupDesk(
        database, lambda: pytest.fail("no secret is read"), lambda _: Runs.COMMAND, lambda: datetime.now(UTC)
    )
    old = await elect(database)
    assert await desk.bind(old, row.id, "start-1", row.owner_user_id)
    await desk.note(old, row.id, SetupState(running=True))
    new = await elect(database)
    assert await desk.bind(new, row.id, "start-2", row.owner_user_id)
    await desk.note(new, row.id, SetupState(folder="api"))

    with pytest.raises(Deposed):
        await desk.bind(old, row.id, "start-1", row.owner_user_id)
    with pytest.raises(Deposed):
        await desk.note(old, row.id, SetupState(running=True))

    async with database.transaction() as tx:
        assert await setup_links.is_bound(tx, row.id, "start-2", row.owner_user_id), (
            "git and secrets still work in it"
        )
    seen = await row_of(database, row.id)
    assert seen.setup == SetupState(folder="api")
