"""The control plane: reaction, idle cost, a thousand starts at once, failover. Real PostgreSQL, the world in memory.

`python -m bench control` takes about four minutes. The coordinator logs warnings only: a terminal is no part of this.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime
from statistics import median, quantiles

import psutil
import structlog

from codehub.adapters.embedded.postgres import EmbeddedPostgres
from codehub.adapters.postgres import system
from codehub.adapters.postgres.control_store import PostgresControlStore
from codehub.adapters.postgres.migrate import migrate
from codehub.adapters.postgres.pool import Database
from codehub.control.controller import OBSERVED_AT_ONCE
from codehub.control.deps import ControllerSettings, TtlSettings
from codehub.control.metrics import Metrics
from codehub.control.reconcile import OBSERVED_EVERY
from codehub.domain.model import DesiredState, HomeCtx, Phase, Workspace
from testing.codehub.coordinators import LOCK_ID, MemoryParts, leading, settings
from testing.codehub.memory.world import Volume
from testing.codehub.rows import put_workspaces
from testing.codehub.services import service_dir
from testing.codehub.workspaces import workspace

_REACTIONS, _SETTLED, _AT_ONCE, _IDLE_FOR_S, _FAILOVERS = 200, (100, 1_000, 10_000), 1_000, 40.0, 5
# Every so often `observed_at` of all is written though nothing changed: no idle time here is so long.
_OBSERVED_EVERY_S = OBSERVED_EVERY.total_seconds()


def measure() -> list[dict[str, object]]:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    try:
        return asyncio.run(_measure())
    finally:
        structlog.reset_defaults()


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
                rows += await _idle(database, server, number)
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
    async with asyncio.timeout(300):
        while await _count(database, phase) < number:
            await asyncio.sleep(0.005 if number == 1 else 0.1)


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
    await put_workspaces(database, [_ws(1, DesiredState.RUNNING)])
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


async def _idle(database: Database, server: EmbeddedPostgres, number: int) -> list[dict[str, object]]:
    """So many at rest, a hundred of them running: what one more minute costs."""
    await _wipe(database)
    parts, metrics, chosen = MemoryParts(), Metrics(), settings("bench")
    made = [_ws(one, DesiredState.RUNNING if one < 100 else DesiredState.STANDBY) for one in range(number)]
    parts.homes.volumes.update({row.id: Volume(HomeCtx(f"inc-{row.id}")) for row in made})
    await put_workspaces(database, made)
    chosen = replace(chosen, controller=ControllerSettings(), ttl=TtlSettings())
    began = time.monotonic()
    async with leading(database, parts, chosen, metrics):
        await _until(database, Phase.RUNNING, 100)
        await _until(database, Phase.STANDBY, number - 100)
        settled_s = time.monotonic() - began
        await asyncio.sleep(chosen.controller.active_duration_s + 1)
        ticks, queries, theirs = _ticks(metrics), await _queries(database), _cpu_of_all(server)
        cpu, began = time.process_time(), time.monotonic()
        await asyncio.sleep(_IDLE_FOR_S)
        took = time.monotonic() - began
        share, their_share = (time.process_time() - cpu) / took, (_cpu_of_all(server) - theirs) / took
        per_minute = (await _queries(database) - queries) / took * 60
        tick_s = (_ticks(metrics)[1] - ticks[1]) / max(1, _ticks(metrics)[0] - ticks[0])
    observed_s, observed_cpu_s = await _observed_once(database, [row.id for row in made])
    total = (share + observed_cpu_s / _OBSERVED_EVERY_S) * 100
    what = f"{number} settled, idle"
    return [
        {"what": f"{what}: CPU of the coordinator", "value": round(total, 2), "unit": "% of a core", "floor": "≤ 5"},
        {"what": f"{what}: CPU of PostgreSQL", "value": round(their_share * 100, 2), "unit": "% of a core"},
        {"what": f"{what}: transactions", "value": round(per_minute), "unit": "per minute"},
        {"what": f"{what}: a tick", "value": round(tick_s * 1000, 1), "unit": "ms", "floor": "≤ 1000"},
        {"what": f"{what}: observed_at of all, every 5 min", "value": round(observed_s * 1000, 1), "unit": "ms"},
        {"what": f"{what}: first seen → settled", "value": round(settled_s, 2), "unit": "s"},
    ]


def _ticks(metrics: Metrics) -> tuple[float, float]:
    """Return how many resyncs there were, and how long they took together."""
    name, labels = "codehub_coordinator_tick_seconds", {"component": "workspace_controller"}
    found = [metrics.registry.get_sample_value(f"{name}_{what}", labels) for what in ("count", "sum")]
    return found[0] or 0.0, found[1] or 0.0


def _cpu_of_all(server: EmbeddedPostgres) -> float:
    """Seconds of CPU of the server's processes."""
    assert server.pid is not None
    parent = psutil.Process(server.pid)
    return sum(sum(one.cpu_times()[:2]) for one in (parent, *parent.children(recursive=True)))


async def _observed_once(database: Database, ids: list[str]) -> tuple[float, float]:
    async with database.transaction() as tx:
        epoch = (await system.leadership(tx, LOCK_ID)).epoch
    began, cpu = time.monotonic(), time.process_time()
    for first in range(0, len(ids), OBSERVED_AT_ONCE):
        await PostgresControlStore(database).note_observed(
            epoch, ids[first : first + OBSERVED_AT_ONCE], datetime.now(UTC)
        )
    return time.monotonic() - began, time.process_time() - cpu


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
    await put_workspaces(database, [_ws(one, DesiredState.STANDBY) for one in range(_AT_ONCE)])
    async with leading(database, parts, settings("bench")):
        await _until(database, Phase.STANDBY, _AT_ONCE)
        began, cpu = time.monotonic(), time.process_time()
        async with database.transaction() as tx:
            await tx.execute("UPDATE workspaces SET desired_state = 'RUNNING'")
        await _until(database, Phase.RUNNING, _AT_ONCE)
        took, cpu = time.monotonic() - began, time.process_time() - cpu
    what = f"{_AT_ONCE} started at once"
    return [
        {"what": f"{what}: all run", "value": round(took, 2), "unit": "s"},
        {"what": f"{what}: CPU of the coordinator", "value": round(cpu, 2), "unit": "s"},
    ]


async def _failover(url: str, database: Database) -> list[dict[str, object]]:
    """Kill −9 of the leader → the next one leads → it has begun what was asked for at the moment of the kill."""
    await _wipe(database)
    row = _ws(1, DesiredState.STANDBY)
    await put_workspaces(database, [row])

    async def epoch() -> int:
        async with database.transaction() as tx:
            return (await system.leadership(tx, LOCK_ID)).epoch

    async def wait_for(holds: Callable[[], Awaitable[bool]]) -> None:
        async with asyncio.timeout(60):
            while not await holds():
                await asyncio.sleep(0.002)

    async def stands() -> bool:
        async with database.transaction() as tx:
            rows = await (
                await tx.execute("SELECT FROM pg_locks WHERE locktype = 'advisory' AND NOT granted")
            ).fetchall()
        return bool(rows)

    async def settled(phase: Phase) -> None:
        async def there() -> bool:
            return await _count(database, phase) == 1

        await wait_for(there)

    started: list[subprocess.Popen[bytes]] = []

    def start() -> None:
        name = f"node-{len(started)}"
        started.append(subprocess.Popen([sys.executable, "-m", "testing.codehub.coordinators", url, name]))

    leads_ms: list[float] = []
    acts_ms: list[float] = []
    try:
        start()
        await settled(Phase.STANDBY)
        for turn in range(_FAILOVERS):
            start()
            await wait_for(stands)
            before = await epoch()
            began = time.monotonic()
            started[turn].send_signal(signal.SIGKILL)
            async with database.transaction() as tx:
                # The next leader's world is in its own memory: to it this is a home that is to be made.
                await tx.execute(
                    "UPDATE workspaces SET desired_state = 'RUNNING', phase = 'PENDING', home_ctx = NULL"
                )

            async def led(before: int = before) -> bool:
                return await epoch() > before

            await wait_for(led)
            leads_ms.append((time.monotonic() - began) * 1000)

            async def begun() -> bool:
                async with database.transaction() as tx:
                    found = await (await tx.execute("SELECT operation, phase FROM workspaces")).fetchone()
                assert found is not None
                return bool(found["operation"] != "NONE" or found["phase"] != "PENDING")

            await wait_for(begun)
            acts_ms.append((time.monotonic() - began) * 1000)
            await settled(Phase.RUNNING)
    finally:
        for process in started:
            process.kill()
            process.wait(30)
    return [
        {"what": "leader killed → next leads, median", "value": round(median(leads_ms)), "unit": "ms"},
        {
            "what": "leader killed → next acts, median",
            "value": round(median(acts_ms)),
            "unit": "ms",
            "floor": "≤ 1000",
        },
        {"what": "leader killed → next acts, slowest", "value": round(max(acts_ms)), "unit": "ms", "floor": "≤ 1000"},
    ]
