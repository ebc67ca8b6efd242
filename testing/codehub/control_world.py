"""One coordinator's world in memory, on a virtual clock, for tests of single guards of the control plane."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, cast

from codehub.control.coordinator import run_coordinator
from codehub.control.deps import ControllerSettings, CoordinatorDeps, CoordinatorSettings, ProfileOf, TtlSettings
from codehub.control.heartbeat import Heartbeat
from codehub.control.metrics import Metrics
from codehub.control.ttl_runner import TtlRunner
from codehub.domain.busy import Work
from codehub.domain.model import (
    HomeCtx,
    Workspace,
)
from codehub.domain.profiles import AppProfile
from codehub.ports.fence import no_fence
from codehub.ports.instances import Upstream
from codehub.ports.stores import IdentifiedStore
from testing.codehub.memory.activity import MemoryActivity
from testing.codehub.memory.bus import MemoryBus
from testing.codehub.memory.database import MemoryDatabase
from testing.codehub.memory.leadership import MemoryElection
from testing.codehub.memory.world import MemoryArchives, MemoryHomes, MemoryInstances
from testing.codehub.simulation.loop import VirtualClock, VirtualLoop, run_virtual
from testing.codehub.workspaces import WORKSPACE_ID, workspace

PROFILE = AppProfile("code-server", health_timeout_s=20.0, activity_path="/activity")


CTX = HomeCtx("inc-1")


@dataclass
class World:
    """One coordinator's world in memory, on a virtual clock."""

    loop: VirtualLoop = field(default_factory=VirtualLoop)
    database: MemoryDatabase = field(default_factory=MemoryDatabase)
    archives: MemoryArchives = field(default_factory=MemoryArchives)
    instances: MemoryInstances = field(default_factory=MemoryInstances)
    activity: MemoryActivity = field(default_factory=MemoryActivity)
    engine: MemoryInstances = field(default_factory=lambda: MemoryInstances("local-docker"))
    metrics: Metrics = field(default_factory=Metrics)
    stores: Sequence[IdentifiedStore] = ()

    def __post_init__(self) -> None:
        self.clock = VirtualClock(self.loop)
        self.homes: MemoryHomes = MemoryHomes(self.archives)
        self.probed: list[str] = []
        # What the IDE answers if it is asked for its activity; an exception is raised.
        self.working: Work | Exception | None = Work(self.clock.now(), "a test")
        self.profile_of: ProfileOf = lambda row: (row.image_ref, PROFILE)

    async def work(self, upstream: Upstream, path: str, now: datetime) -> Work | None:
        self.probed.append(path)
        if isinstance(self.working, Exception):
            raise self.working
        return None if self.working is None else replace(self.working, at=now)

    @asynccontextmanager
    async def leading(self, **controller: float) -> Any:
        settings = CoordinatorSettings(
            "node", ControllerSettings(**cast(Any, controller)), TtlSettings(interval_s=1e9)
        )
        ids = iter(range(10_000))
        deps = CoordinatorDeps(
            election=MemoryElection(self.database, self.clock),
            store=self.database,
            ttl_store=self.database,
            gc_store=self.database,
            schedule_store=self.database,
            disk_store=self.database,
            notifications=self.database,
            bus=MemoryBus(),
            activity=self.activity,
            asks_activity=self,
            instances={"process": self.instances, "local-docker": self.engine},
            homes={"local-dir": self.homes},
            archives=self.archives,
            profile_of=lambda row: (row.image_ref, PROFILE),
            clock=self.clock,
            new_id=lambda: f"id-{next(ids)}",
            random=lambda: 0.5,
            stores=self.stores,
            registry=self.database,
        )
        task = asyncio.create_task(run_coordinator(settings, deps, metrics=self.metrics))
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait([task])

    def put(self, id_: str = WORKSPACE_ID, **changes: Any) -> Workspace:
        row = replace(workspace(id_, created_at=self.clock.now()), last_access_at=self.clock.now(), **changes)
        self.database.put(row)
        return row

    async def until(
        self, holds: Callable[[Workspace], bool], within_s: float = 3_600, id_: str = WORKSPACE_ID
    ) -> Workspace:
        deadline = self.clock.monotonic() + within_s
        while True:
            row = self.database.rows[id_]
            if holds(row):
                return row
            assert self.clock.monotonic() < deadline, row
            await asyncio.sleep(0.5)

    def runner(self, settings: TtlSettings | None = None) -> TtlRunner:
        lease = cast(Any, FakeLease(self.database.epoch))
        heartbeat = Heartbeat("ttl_runner", self.clock, Metrics(), no_fence)
        return TtlRunner(
            self.database,
            self.activity,
            self,
            {"process": self.instances},
            lambda row: self.profile_of(row),
            lambda _: None,
            lease,
            self.clock,
            settings or TtlSettings(interval_s=60, standby_s=600, archive_s=1e9, flush_interval_s=30),
            heartbeat,
        )


@dataclass
class FakeLease:
    epoch: int

    def fence(self) -> None:
        return None


def run(world: World, main: Callable[[], Awaitable[None]]) -> None:
    async def wrapped() -> None:
        await main()

    run_virtual(wrapped(), world.loop)
