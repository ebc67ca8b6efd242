"""The control plane: reaction, idle cost, a thousand starts at once, failover. Real PostgreSQL, the world in memory."""

from __future__ import annotations

import asyncio
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from datetime import UTC, datetime
from statistics import median, quantiles

from codehub.adapters.embedded.postgres import EmbeddedPostgres
from codehub.adapters.memory.world import Volume
from codehub.adapters.postgres import system
from codehub.adapters.postgres.migrate import migrate
from codehub.adapters.postgres.pool import Database
from codehub.domain.model import DesiredState, HomeCtx, Phase, Workspace
from testing.coordinators import LOCK_ID, MemoryParts, leading, settings
from testing.rows import put_workspace
from testing.services import service_dir
from testing.workspaces import workspace

_REACTIONS, _SETTLED, _AT_ONCE, _IDLE_FOR_S = 100, (100, 1_000, 10_000), 1_000, 45.0


def measure() -> list[dict[str, object]]:
    return asyncio.run(_measure())


async def _measure() -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    place = service_dir()
    server = EmbeddedPostgres(place)
    server.start()
    try:
        await migrate(server.url())
        async with Database(server.url()) as database:
            rows += await _reaction(database)
            for number in _SETTLED:
                rows += await _idle(database, number)
            rows += await _at_once(database)
            rows += await _failover(server.url(), database)
    finally:
        server.stop()
        shutil.rmtree(place, ignore_errors=True)
    return rows


def _ws(number: int, desired: DesiredState) -> Workspace:
    now = datetime.now(UTC)
    row = workspace(f"01980000-0000-7000-8000-{number:012d}", desired=desired, created_at=now)
    return replace(row, last_access_at=now)


async def _wipe(database: Database) -> None:
    async with database.transaction() as tx:
        await tx.execute("TRUNCATE workspaces CASCADE")


async def _count(database: Database, phase: Phase) -> int:
    async with database.transaction() as tx:
        row = await (
            await tx.execute(
                "SELECT count(*) AS n FROM workspaces WHERE phase = %s AND operation = 'NONE'", [phase.value]
            )
        ).fetchone()
    assert row is not None
    return int(row["n"])


async def _until(database: Database, phase: Phase, number: int) -> None:
    async with asyncio.timeout(600):
        while await _count(database, phase) < number:
            await asyncio.sleep(0.05)


async def _reaction(database: Database) -> list[dict[str, object]]:
    """From the commit of desired_state to the backend's call."""
    await _wipe(database)
    parts = MemoryParts()
    acted: dict[str, float] = {}
    hint = parts.instances.hint

    def noted(workspace_id: str) -> None:
        acted.setdefault(workspace_id, time.perf_counter())
        hint(workspace_id)

    delays: list[float] = []
    await put_workspace(database, _ws(1, DesiredState.RUNNING))
    async with leading(database, parts, settings("bench")):
        await _until(database, Phase.RUNNING, 1)
        parts.instances.hint = noted  # type: ignore[method-assign]
        for turn in range(_REACTIONS):
            desired, phase = (
                (DesiredState.STANDBY, Phase.STANDBY) if turn % 2 == 0 else (DesiredState.RUNNING, Phase.RUNNING)
            )
            acted.clear()
            began = time.perf_counter()
            async with database.transaction() as tx:
                await tx.execute("UPDATE workspaces SET desired_state = %s", [desired.value])
            await _until(database, phase, 1)
            delays.append((next(iter(acted.values())) - began) * 1000)
    what = "desired_state changed → action begins"
    return [
        {"what": f"{what}, p50", "value": round(median(delays), 2), "unit": "ms", "floor": "≤ 20"},
        {"what": f"{what}, p99", "value": round(quantiles(delays, n=100)[98], 2), "unit": "ms", "floor": "≤ 100"},
    ]


async def _idle(database: Database, number: int) -> list[dict[str, object]]:
    """So many at rest, a hundred of them running: what one more minute costs."""
    await _wipe(database)
    parts = MemoryParts()
    for one in range(number):
        row = _ws(one, DesiredState.RUNNING if one < 100 else DesiredState.STANDBY)
        parts.homes.volumes[row.id] = Volume(HomeCtx(f"inc-{one}"))
        await put_workspace(database, row)
    chosen = settings("bench")
    chosen = replace(chosen, controller=replace(chosen.controller, idle_interval_s=15.0, active_interval_s=1.0))
    async with leading(database, parts, chosen):
        await _until(database, Phase.RUNNING, 100)
        await _until(database, Phase.STANDBY, number - 100)
        await asyncio.sleep(5)
        cpu, began, queries = time.process_time(), time.monotonic(), await _queries(database)
        await asyncio.sleep(_IDLE_FOR_S)
        took = time.monotonic() - began
        share = (time.process_time() - cpu) / took * 100
        per_minute = (await _queries(database) - queries) / took * 60
    return [
        {
            "what": f"{number} settled, idle: CPU of the coordinator",
            "value": round(share, 2),
            "unit": "% of a core",
            "floor": "≤ 5",
        },
        {"what": f"{number} settled, idle: transactions", "value": round(per_minute), "unit": "per minute"},
    ]


async def _queries(database: Database) -> int:
    async with database.transaction() as tx:
        row = await (
            await tx.execute("SELECT xact_commit AS n FROM pg_stat_database WHERE datname = current_database()")
        ).fetchone()
    assert row is not None
    return int(row["n"])


async def _at_once(database: Database) -> list[dict[str, object]]:
    await _wipe(database)
    parts = MemoryParts()
    for one in range(_AT_ONCE):
        await put_workspace(database, _ws(one, DesiredState.RUNNING))
    began = time.monotonic()
    async with leading(database, parts, settings("bench")):
        await _until(database, Phase.RUNNING, _AT_ONCE)
    return [
        {
            "what": f"{_AT_ONCE} told to start at once: all run",
            "value": round(time.monotonic() - began, 2),
            "unit": "s",
        }
    ]


async def _failover(url: str, database: Database) -> list[dict[str, object]]:
    """Kill −9 of the leader → the next one holds the lock, and has written as the leader."""
    await _wipe(database)

    async def holder() -> tuple[str, bool]:
        async with database.transaction() as tx:
            found = await system.leadership(tx, LOCK_ID)
        return found.holder_id, bool(found.components)

    async def wait_for(name: str, *, acts: bool) -> None:
        async with asyncio.timeout(60):
            while (found := await holder())[0] != name or (acts and not found[1]):
                await asyncio.sleep(0.002)

    command = [sys.executable, "-m", "testing.coordinators", url]
    first, second = subprocess.Popen([*command, "first"]), None
    try:
        await wait_for("first", acts=True)
        second = subprocess.Popen([*command, "second"])
        await asyncio.sleep(5)
        began = time.monotonic()
        first.send_signal(signal.SIGKILL)
        await wait_for("second", acts=False)
        leads = time.monotonic() - began
        await wait_for("second", acts=True)
        acts = time.monotonic() - began
    finally:
        for process in (first, second):
            if process is not None:
                process.kill()
                process.wait(30)
    return [
        {"what": "leader killed → next leads", "value": round(leads * 1000), "unit": "ms"},
        {"what": "leader killed → next acts", "value": round(acts * 1000), "unit": "ms", "floor": "≤ 1000"},
    ]
