"""Guards of the control plane whose absence would cost data or work, one by one, on a virtual clock."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, cast

import pytest

from codehub.control.act import Actor, Task
from codehub.control.coordinator import run_coordinator
from codehub.control.deps import ControllerSettings, CoordinatorDeps, CoordinatorSettings, GcSettings, TtlSettings
from codehub.control.gc_runner import GcRunner
from codehub.control.guarded_backends import GuardedBackends
from codehub.control.health import HealthTracker
from codehub.control.heartbeat import Heartbeat
from codehub.control.metrics import Metrics
from codehub.control.ttl_runner import TtlRunner
from codehub.domain.applied_template import AppliedTemplate
from codehub.domain.busy import Work
from codehub.domain.errors import BackendDown, Terminal
from codehub.domain.gc import Claim
from codehub.domain.model import (
    Condition,
    Conditions,
    ConditionStatus,
    DesiredState,
    ErrorReason,
    HomeCtx,
    Operation,
    Phase,
    Workspace,
)
from codehub.domain.profiles import AppProfile
from codehub.domain.ttl import ActivityCoverage, Span
from codehub.ports.archives import ArchivePlace
from codehub.ports.fence import Fence, Report, ignore_progress, no_fence
from codehub.ports.homes import ArchiveReceipt, HomeKey, HomeState, HomeStatus
from codehub.ports.instances import Upstream
from testing.codehub.memory.activity import MemoryActivity
from testing.codehub.memory.bus import MemoryBus
from testing.codehub.memory.database import MemoryDatabase
from testing.codehub.memory.leadership import MemoryElection
from testing.codehub.memory.world import MemoryArchives, MemoryHomes, MemoryInstances, Volume
from testing.codehub.simulation.loop import VirtualClock, VirtualLoop, run_virtual
from testing.codehub.workspaces import workspace

_PROFILE = AppProfile("code-server", health_timeout_s=20.0, activity_path="/activity")
_CTX = HomeCtx("inc-1")


@dataclass
class World:
    """One coordinator's world in memory, on a virtual clock."""

    loop: VirtualLoop = field(default_factory=VirtualLoop)
    database: MemoryDatabase = field(default_factory=MemoryDatabase)
    archives: MemoryArchives = field(default_factory=MemoryArchives)
    instances: MemoryInstances = field(default_factory=MemoryInstances)
    activity: MemoryActivity = field(default_factory=MemoryActivity)

    def __post_init__(self) -> None:
        self.clock = VirtualClock(self.loop)
        self.homes: MemoryHomes = MemoryHomes(self.archives)
        self.probed: list[str] = []

    async def work(self, upstream: Upstream, path: str, now: datetime) -> Work | None:
        self.probed.append(path)
        return Work(now, "a test")

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
            instances={"process": self.instances},
            homes={"local-dir": self.homes},
            archives=self.archives,
            profile_of=lambda row: (row.image_ref, _PROFILE),
            clock=self.clock,
            new_id=lambda: f"id-{next(ids)}",
            random=lambda: 0.5,
        )
        task = asyncio.create_task(run_coordinator(settings, deps, metrics=Metrics()))
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait([task])

    def put(self, **changes: Any) -> Workspace:
        row = replace(workspace(created_at=self.clock.now()), last_access_at=self.clock.now(), **changes)
        self.database.put(row)
        return row

    async def until(self, holds: Callable[[Workspace], bool], within_s: float = 3_600) -> Workspace:
        deadline = self.clock.monotonic() + within_s
        while True:
            row = self.database.rows[workspace().id]
            if holds(row):
                return row
            assert self.clock.monotonic() < deadline, row
            await asyncio.sleep(0.5)

    def runner(self, settings: TtlSettings | None = None) -> TtlRunner:
        lease = cast(Any, _Lease(self.database.epoch))
        heartbeat = Heartbeat("ttl_runner", self.clock, Metrics(), no_fence)
        return TtlRunner(
            self.database,
            self.activity,
            self,
            {"process": self.instances},
            lambda row: (row.image_ref, _PROFILE),
            lambda _: None,
            lease,
            self.clock,
            settings or TtlSettings(interval_s=60, standby_s=600, archive_s=1e9, flush_interval_s=30),
            heartbeat,
        )


@dataclass
class _Lease:
    epoch: int

    def fence(self) -> None:
        return None


def run(world: World, main: Callable[[], Awaitable[None]]) -> None:
    async def wrapped() -> None:
        await main()

    run_virtual(wrapped(), world.loop)


def test_an_unhealthy_instance_is_replaced_by_a_new_one() -> None:
    world = World()

    async def main() -> None:
        world.put()
        async with world.leading():
            await world.until(lambda row: row.phase is Phase.RUNNING)
            first = world.instances.there[workspace().id].identity
            world.instances.deaf.add(workspace().id)
            await world.until(lambda row: row.operation is Operation.STARTING)
            world.instances.deaf.clear()
            await world.until(lambda row: row.phase is Phase.RUNNING and row.operation is Operation.NONE)
            assert world.instances.there[workspace().id].identity != first

    run(world, main)


def test_an_instance_that_keeps_ending_is_given_up() -> None:
    world = World()

    async def main() -> None:
        world.put()
        async with world.leading(idle_interval_s=2.0):
            row = await world.until(lambda row: row.phase is Phase.RUNNING)
            for _ in range(10):
                ended = world.instances.there[row.id].identity
                world.instances.end(row.id, "ExitCode:1")
                row = await world.until(lambda row, ended=ended: _settled(world, row, ended))  # type: ignore[misc]
                if row.phase is Phase.ERROR:
                    break
            assert row.error_reason is ErrorReason.RETRY_EXCEEDED
            kinds = [event.kind for _, event in world.database.events[row.id]]
            assert kinds.count("restarting") == 3

    run(world, main)


def _settled(world: World, row: Workspace, ended: str) -> bool:
    runs = row.phase is Phase.RUNNING and world.instances.there[row.id].identity != ended
    return row.operation is Operation.NONE and (runs or row.phase is Phase.ERROR)


def test_the_operation_timeout_stands_still_while_the_backend_is_down() -> None:
    world = World()

    async def main() -> None:
        world.put(desired_state=DesiredState.STANDBY)
        async with world.leading(operation_timeout_s=60.0):
            await world.until(lambda row: row.phase is Phase.STANDBY)
            world.archives.away = True
            world.database.put(replace(world.database.rows[workspace().id], desired_state=DesiredState.ARCHIVED))
            await asyncio.sleep(600)
            assert world.database.rows[workspace().id].error_reason is None
            world.archives.away = False
            row = await world.until(lambda row: row.phase is Phase.ARCHIVED)
            assert row.error_reason is None

    run(world, main)


def test_a_home_is_archived_only_when_its_instance_is_gone() -> None:
    class Watching(MemoryHomes):
        async def archive(
            self, home: HomeKey, ctx: HomeCtx, op_id: str, report: Report, fence: Fence
        ) -> ArchiveReceipt:
            assert home.workspace_id not in world.instances.there, "its instance could still write"
            return await super().archive(home, ctx, op_id, report, fence)

    world = World()
    world.homes = Watching(world.archives)

    async def main() -> None:
        world.put()
        async with world.leading():
            await world.until(lambda row: row.phase is Phase.RUNNING)
            world.database.put(replace(world.database.rows[workspace().id], desired_state=DesiredState.ARCHIVED))
            await world.until(lambda row: row.phase is Phase.ARCHIVED)

    run(world, main)


def test_a_damaged_home_that_is_recorded_is_not_purged_by_a_deletion() -> None:
    class Damaged(MemoryHomes):
        async def status(self, home: HomeKey) -> HomeStatus:
            return HomeStatus(HomeState.INCOMPLETE)

    world = World()
    world.homes = Damaged(world.archives)

    async def nobody(_: str) -> None:
        return None

    async def main() -> None:
        world.homes.volumes[workspace().id] = Volume(_CTX, {"notes": b"half of it"})
        backends = GuardedBackends(
            {"process": world.instances}, {"local-dir": world.homes}, world.archives, world.clock
        )
        actor = Actor(
            backends,
            HealthTracker(world.clock),
            lambda row: ("", _PROFILE),
            world.clock,
            lambda: "id",
            lambda: 0.5,
            nobody,
        )
        row = replace(
            workspace(desired=DesiredState.DELETED), operation=Operation.DELETING, home_ctx=_CTX, archive_op_id="op-1"
        )

        async def record(receipt: ArchiveReceipt, is_current: bool) -> None:
            raise AssertionError("nothing can be archived")

        with pytest.raises(Terminal):
            await actor.act(Task(row, no_fence, ignore_progress, record))
        assert workspace().id in world.homes.volumes

    run(world, main)


def test_the_gc_asks_once_more_right_before_it_removes() -> None:
    class Changing(MemoryDatabase):
        looks = 0

        async def claims(self, ids: Collection[str], keep: int) -> Mapping[str, Claim]:
            found = await super().claims(ids, keep)
            self.looks += 1
            # Between the two looks somebody recovered the workspace from this very archive.
            if self.looks > 1:
                return {id_: replace(claim, archive_key=place.archive_key) for id_, claim in found.items()}
            return found

    world = World(database=Changing())
    place = ArchivePlace(workspace().id, "op-1", f"{workspace().id}/op-1/home.tar.zst")

    async def main() -> None:
        seen = Conditions(volume_ready=Condition(ConditionStatus.TRUE, "Ready"))
        world.put(phase=Phase.STANDBY, home_ctx=_CTX, conditions=seen)
        world.archives.put(place, {"notes": b"kept"})
        heartbeat = Heartbeat("gc_runner", world.clock, Metrics(), no_fence)
        gc = GcRunner(
            world.database,
            world.archives,
            cast(Any, _Lease(world.database.epoch)),
            world.clock,
            GcSettings(orphan_grace_s=0),
            heartbeat,
        )
        await gc.tick()
        assert world.archives.find(place.archive_key) == {"notes": b"kept"}

    run(world, main)


def test_activity_is_forgotten_only_after_it_was_stored() -> None:
    class Failing(MemoryDatabase):
        async def note_access(self, epoch: int, times: Mapping[str, datetime]) -> None:
            raise BackendDown("the database is away")

    world = World(database=Failing())

    async def main() -> None:
        await world.activity.flush({workspace().id: 1_000.0})
        with pytest.raises(BackendDown):
            await world.runner().tick()
        assert await world.activity.pending() == {workspace().id: 1_000.0}

    run(world, main)


def test_a_new_term_does_not_trust_what_it_did_not_see() -> None:
    world = World()

    async def main() -> None:
        now = world.clock.now()
        await world.activity.unbroken()
        await world.database.record_coverage(world.database.epoch, ActivityCoverage(now))
        await world.runner().tick()
        assert (await world.database.coverage()).gaps, "the first tick of a term counts as blind"

    run(world, main)


@pytest.mark.parametrize("late_s", [4, 25])
def test_an_idle_workspace_is_put_to_sleep_by_ticks_that_come_late(late_s: float) -> None:
    """On an overloaded machine each tick seemed to end a gap, and an idle workspace stayed awake for ever."""
    world = World()

    async def main() -> None:
        row = world.put(phase=Phase.RUNNING, home_ctx=_CTX)
        runner = world.runner(TtlSettings(interval_s=1, standby_s=15, archive_s=1e9, flush_interval_s=1))
        for _ in range(20):
            await runner.tick()
            await asyncio.sleep(late_s)
        assert world.database.rows[row.id].desired_state is DesiredState.STANDBY

    run(world, main)


class _SuspendedClock(VirtualClock):
    """A machine that was suspended: the time of day goes on, the monotonic clock does not."""

    asleep = timedelta()

    def now(self) -> datetime:
        return super().now() + self.asleep


def test_a_machine_suspended_in_the_middle_of_a_tick_counts_as_a_gap() -> None:
    world = World()
    world.clock = clock = _SuspendedClock(world.loop)

    async def main() -> None:
        row = world.put(phase=Phase.RUNNING, home_ctx=_CTX)
        runner, put_to_sleep = world.runner(), world.database.put_to_sleep

        async def suspended(*arguments: Any) -> list[str]:
            slept = await put_to_sleep(*arguments)
            clock.asleep = timedelta(hours=8)
            return slept

        await world.activity.unbroken()
        await runner.tick()
        cast(Any, world.database).put_to_sleep = suspended
        await runner.tick()
        cast(Any, world.database).put_to_sleep = put_to_sleep
        await runner.tick()
        assert world.database.rows[row.id].desired_state is DesiredState.RUNNING, "nobody could work in it meanwhile"

    run(world, main)


def test_a_gap_is_kept_as_long_as_the_ttl_of_a_template_needs_it() -> None:
    world = World()

    async def main() -> None:
        now = world.clock.now()
        since, day = now - timedelta(days=35), timedelta(days=1)
        template = AppliedTemplate("web", 1, "x", "x", ttl_standby=30 * day)
        row = world.put(phase=Phase.RUNNING, home_ctx=_CTX, template=template, phase_changed_at=since)
        world.database.put(replace(row, last_access_at=since))
        gap = Span(now - 25 * day, now - 15 * day)  # idle for 35 days, 10 of which could not be seen
        await world.activity.unbroken()
        await world.database.record_coverage(world.database.epoch, ActivityCoverage(now, (gap,)))
        await world.runner().tick()
        assert gap in (await world.database.coverage()).gaps
        assert not world.probed
        assert world.database.rows[row.id].desired_state is DesiredState.RUNNING, "unseen time is not idle time"

    run(world, main)


def test_the_ide_is_asked_before_its_workspace_is_put_to_sleep() -> None:
    world = World()

    async def main() -> None:
        row = world.put(phase=Phase.RUNNING, home_ctx=_CTX)
        world.homes.volumes[row.id] = Volume(_CTX, {})
        from codehub.ports.instances import InstanceSpec

        spec = InstanceSpec(row.id, row.image_ref, _PROFILE, world.homes.mount(HomeKey(row.id, row.home_store_key)))
        await world.instances.start(spec, ignore_progress, no_fence)
        runner = world.runner()
        await world.activity.unbroken()
        await runner.tick()
        for _ in range(30):
            await asyncio.sleep(60)
            await runner.tick()
        assert world.probed
        assert world.database.rows[row.id].desired_state is DesiredState.RUNNING

    run(world, main)
