"""Homes that seem lost: found again without anybody's help, never marked in bulk, never judged by the wrong coordinator."""

from __future__ import annotations

import asyncio
import shutil
from dataclasses import replace
from datetime import UTC, datetime

from codehub.adapters.postgres import system
from codehub.adapters.postgres.pool import Database
from codehub.control.metrics import Metrics
from codehub.domain.model import DesiredState, ErrorReason, HomeCtx, Operation, Phase, Workspace
from codehub.wiring import new_id
from testing.codehub.coordinators import LOCK_ID, MemoryParts, leading, row_of, until
from testing.codehub.installation import installation
from testing.codehub.memory.world import Volume
from testing.codehub.rows import put_workspaces
from testing.codehub.workspaces import workspace


def asleep(parts: MemoryParts, count: int) -> list[Workspace]:
    now = datetime.now(UTC)
    rows = []
    for number in range(count):
        ctx = HomeCtx(f"inc-{number}")
        row = workspace(new_id(), desired=DesiredState.STANDBY, created_at=now)
        rows.append(replace(row, name=f"w{number}", phase=Phase.STANDBY, home_ctx=ctx, last_access_at=now))
        parts.homes.volumes[row.id] = Volume(ctx, {"notes": b"kept"})
    return rows


async def all_are(database: Database, rows: list[Workspace], phase: Phase) -> None:
    async def there() -> bool:
        found = [await row_of(database, row.id) for row in rows]
        return all(one.phase is phase and one.operation is Operation.NONE and one.observed_at for one in found)

    await until(there, f"all become {phase}")


async def test_a_lost_home_that_is_there_again_ends_the_error_by_itself(database: Database) -> None:
    parts = MemoryParts()
    rows = asleep(parts, 1)
    await put_workspaces(database, rows)
    async with leading(database, parts):
        await all_are(database, rows, Phase.STANDBY)
        taken = parts.homes.volumes.pop(rows[0].id)
        await all_are(database, rows, Phase.ERROR)
        assert (await row_of(database, rows[0].id)).error_reason is ErrorReason.DATA_LOST
        # Another home in its place is not the one that was lost.
        parts.homes.volumes[rows[0].id] = Volume(HomeCtx("another"), {})

        async def seen() -> bool:
            return "another incarnation" in (await row_of(database, rows[0].id)).conditions.volume_ready.message

        await until(seen, "the other one is seen")
        assert (await row_of(database, rows[0].id)).error_reason is ErrorReason.DATA_LOST
        parts.homes.volumes[rows[0].id] = taken
        await all_are(database, rows, Phase.STANDBY)
        assert (await row_of(database, rows[0].id)).error_reason is None


async def test_many_losses_at_once_are_not_believed(database: Database) -> None:
    parts, metrics = MemoryParts(), Metrics()
    rows = asleep(parts, 12)
    await put_workspaces(database, rows)
    async with leading(database, parts, metrics=metrics):
        await all_are(database, rows, Phase.STANDBY)
        parts.homes.hidden = True

        async def alarmed() -> bool:
            async with database.transaction() as tx:
                component = (await system.leadership(tx, LOCK_ID)).components.get("workspace_controller", {})
            return "nothing is marked as lost" in (component.get("last_error") or "")

        await until(alarmed, "the coordinator raises the alarm")
        assert b"codehub_coordinator_losses_paused 1.0" in metrics.render()
        assert [(await row_of(database, row.id)).error_reason for row in rows] == [None] * 12
        parts.homes.hidden = False

        async def calm() -> bool:
            return b"codehub_coordinator_losses_paused 0.0" in metrics.render()

        await until(calm, "the alarm ends")
        assert [(await row_of(database, row.id)).phase for row in rows] == [Phase.STANDBY] * 12


async def test_a_coordinator_with_other_stores_refuses_to_lead_and_the_right_one_leads(
    database: Database, redis_url: str
) -> None:
    async with installation(database, redis_url) as here:
        await here.create(DesiredState.STANDBY)
        right = here.coordinator()
        await here.leads(right)
        await here.reaches(Phase.STANDBY)
        assert (here.data_dir / "homes" / ".codehub-homes").exists()
        elsewhere = here.data_dir.parent / "elsewhere"
        wrong = here.coordinator(
            environment={"CODEHUB_HOMES_DIR": str(elsewhere / "homes"), "CODEHUB_ARCHIVE_URL": elsewhere.as_uri()}
        )
        right.kill()
        log = wrong.log_file.with_suffix(".log")

        async def refuses() -> bool:
            return "refuses to lead" in await asyncio.to_thread(log.read_text)

        await until(refuses, "it says that it refuses")

        async def recorded() -> bool:
            return bool((await here.leadership()).refusals)

        await until(recorded, "the database says why, for the dashboard and doctor")
        (why,) = (await here.leadership()).refusals.values()
        assert f"{elsewhere / 'homes'} is another place" in why
        assert not (await here.leadership()).held
        row = await here.now()
        assert (row.phase, row.error_reason) == (Phase.STANDBY, None)
        assert not (elsewhere / "homes" / ".codehub-homes").exists()
        await here.leads(here.coordinator())
        assert (await here.reaches(Phase.STANDBY)).error_reason is None
        shutil.rmtree(elsewhere, ignore_errors=True)
