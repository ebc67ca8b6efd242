"""Coordinators on a real database with an in-memory world, and one as a process that can be killed."""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import uuid_utils

from codehub.adapters.postgres.control_disk import PostgresDiskStore
from codehub.adapters.postgres.control_gc import PostgresGcStore
from codehub.adapters.postgres.control_leader import PostgresElection
from codehub.adapters.postgres.control_notifications import PostgresNotifications
from codehub.adapters.postgres.control_schedule import PostgresScheduleStore
from codehub.adapters.postgres.control_store import PostgresControlStore
from codehub.adapters.postgres.control_ttl import PostgresTtlStore
from codehub.adapters.postgres.pool import Database
from codehub.adapters.system_clock import SystemClock
from codehub.adapters.upstream_activity import UpstreamActivity
from codehub.control.coordinator import run_coordinator
from codehub.control.deps import ControllerSettings, CoordinatorDeps, CoordinatorSettings, GcSettings, TtlSettings
from codehub.control.metrics import Metrics
from codehub.domain.model import Workspace
from codehub.domain.profiles import AppProfile
from testing.codehub.memory.activity import MemoryActivity
from testing.codehub.memory.bus import MemoryBus
from testing.codehub.memory.world import MemoryArchives, MemoryHomes, MemoryInstances

TIMEOUT_S = 90.0
LOCK_ID = 4711
PROFILE = AppProfile("code-server", health_timeout_s=60.0)


@dataclass(slots=True)
class MemoryParts:
    """The world that all coordinators of a test share."""

    archives: MemoryArchives = field(default_factory=MemoryArchives)
    homes: MemoryHomes = field(init=False)
    instances: MemoryInstances = field(default_factory=MemoryInstances)
    activity: MemoryActivity = field(default_factory=MemoryActivity)
    bus: MemoryBus = field(default_factory=MemoryBus)

    def __post_init__(self) -> None:
        self.homes = MemoryHomes(self.archives)


def settings(node_id: str = "node", **ttl: float) -> CoordinatorSettings:
    return CoordinatorSettings(
        node_id=node_id,
        controller=ControllerSettings(idle_interval_s=2.0, active_interval_s=0.2, active_duration_s=2.0),
        ttl=TtlSettings(**{"interval_s": 3600.0, **ttl}),
        gc=GcSettings(),
        campaign_pause_s=0.1,
    )


async def lead(
    database: Database, parts: MemoryParts, chosen: CoordinatorSettings, metrics: Metrics | None = None
) -> None:
    clock = SystemClock()
    deps = CoordinatorDeps(
        election=PostgresElection(database.url, lock_id=LOCK_ID, retry_interval_s=1.0, clock=clock),
        store=PostgresControlStore(database),
        ttl_store=PostgresTtlStore(database),
        gc_store=PostgresGcStore(database),
        schedule_store=PostgresScheduleStore(database),
        disk_store=PostgresDiskStore(database),
        notifications=PostgresNotifications(database.url),
        bus=parts.bus,
        activity=parts.activity,
        asks_activity=UpstreamActivity(),
        instances={"process": parts.instances},
        homes={"local-dir": parts.homes},
        archives=parts.archives,
        profile_of=lambda row: (row.image_ref, PROFILE),
        clock=clock,
        new_id=lambda: str(uuid_utils.uuid7()),
        random=random.random,
    )
    await run_coordinator(chosen, deps, metrics=metrics)


@asynccontextmanager
async def leading(
    database: Database, parts: MemoryParts, chosen: CoordinatorSettings | None = None, metrics: Metrics | None = None
) -> AsyncIterator[asyncio.Task[None]]:
    """Run a coordinator in this process while the context is open."""
    task = asyncio.create_task(lead(database, parts, chosen or settings(), metrics))
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.wait([task], timeout=TIMEOUT_S)


async def row_of(database: Database, workspace_id: str) -> Workspace:
    return (await PostgresControlStore(database).load([workspace_id]))[0].workspace


async def until(holds: Callable[[], Awaitable[bool]], what: str) -> None:
    """Wait for a condition, with a generous deadline."""
    async with asyncio.timeout(TIMEOUT_S):
        while not await holds():
            await asyncio.sleep(0.02)
        return
    raise AssertionError(what)


async def _main(url: str, node_id: str) -> None:
    async with Database(url) as database:
        await lead(database, MemoryParts(), settings(node_id))


if __name__ == "__main__":
    asyncio.run(_main(sys.argv[1], sys.argv[2]))
