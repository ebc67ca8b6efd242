"""Guards of the TTL runner whose absence would put work to sleep, or keep idle workspaces awake, on a virtual clock."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, cast

import pytest

from codehub.control.deps import TtlSettings
from codehub.control.ttl_runner import TtlRunner
from codehub.domain.applied_template import AppliedTemplate
from codehub.domain.busy import Work
from codehub.domain.errors import BackendDown, NotFound, Transient, UpstreamUnavailable
from codehub.domain.model import (
    DesiredState,
    Phase,
    Workspace,
)
from codehub.domain.profiles import AppProfile
from codehub.domain.ttl import ActivityCoverage, Span
from codehub.ports.fence import ignore_progress, no_fence
from codehub.ports.homes import HomeKey
from codehub.ports.instances import InstanceSpec, InstanceStatus, Upstream
from testing.codehub.control_world import CTX, PROFILE, World, run
from testing.codehub.memory.database import MemoryDatabase
from testing.codehub.memory.world import MemoryInstances, Volume
from testing.codehub.simulation.loop import VirtualClock
from testing.codehub.workspaces import workspace


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
        row = world.put(phase=Phase.RUNNING, home_ctx=CTX)
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
        row = world.put(phase=Phase.RUNNING, home_ctx=CTX)
        runner, put_to_sleep = world.runner(), world.database.put_to_sleep

        async def suspended(*arguments: Any) -> Collection[str]:
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
        row = world.put(phase=Phase.RUNNING, home_ctx=CTX, template=template, phase_changed_at=since)
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
        row = await _started(world)
        runner = world.runner()
        await world.activity.unbroken()
        await runner.tick()
        await _ticks(world, runner)
        assert world.probed
        assert world.database.rows[row.id].desired_state is DesiredState.RUNNING

    run(world, main)


async def _started(world: World) -> Workspace:
    """Return a workspace that runs, and whose IDE can be asked."""
    row = world.put(phase=Phase.RUNNING, home_ctx=CTX)
    world.homes.volumes[row.id] = Volume(CTX, {})
    spec = InstanceSpec(row.id, row.image_ref, PROFILE, world.homes.mount(HomeKey(row.id, row.home_store_key)))
    await world.instances.start(spec, ignore_progress, no_fence)
    return row


async def _ticks(world: World, runner: TtlRunner, minutes: int = 30) -> None:
    for _ in range(minutes):
        await asyncio.sleep(60)
        await runner.tick()


class _Engine(MemoryInstances):
    """Answers, but not what is asked."""

    error: Exception | None = None

    async def status(self, workspace_id: str) -> InstanceStatus:
        if self.error is not None:
            raise self.error
        return await super().status(workspace_id)


@pytest.mark.parametrize("trouble", ["down", "node lost", "the engine answers 500", "the engine answers nonsense"])
def test_a_workspace_that_cannot_be_asked_is_not_put_to_sleep(trouble: str) -> None:
    """Its engine or its node does not answer: a program may be working in it."""
    engine = _Engine()
    world = World(instances=engine)

    async def main() -> None:
        row = world.put(phase=Phase.RUNNING, home_ctx=CTX)
        runner = world.runner()
        await world.activity.unbroken()
        await runner.tick()
        match trouble:
            case "down":
                engine.away = True
            case "node lost":
                engine.there[row.id] = InstanceStatus(exists=True, unknown="its node does not answer")
            case "the engine answers 500":
                engine.error = Transient("GET containers/x/json: 500 internal error")
            case _:
                engine.error = KeyError("State")
        await _ticks(world, runner)
        assert world.database.rows[row.id].desired_state is DesiredState.RUNNING
        engine.away, engine.error = False, None
        engine.there.clear()
        await runner.tick()
        assert world.database.rows[row.id].desired_state is DesiredState.STANDBY

    run(world, main)


@pytest.mark.parametrize("who", ["the IDE", "workspaced"])
@pytest.mark.parametrize("how", [UpstreamUnavailable("no answer"), RuntimeError("a bug")], ids=["silence", "a bug"])
def test_a_workspace_that_does_not_answer_stays_awake_for_the_longest_time_of_work(who: str, how: Exception) -> None:
    world = World()
    if who == "workspaced":
        world.profile_of = lambda row: (row.image_ref, replace(PROFILE, activity_path=None))

    async def main() -> None:
        row = await _started(world)
        if who == "workspaced":
            there = world.instances.there[row.id]
            world.instances.there[row.id] = replace(there, workspaced=there.upstream)
        runner = world.runner(TtlSettings(60, 600, 1e9, 30, busy_max_s=7_200))
        await world.activity.unbroken()
        await runner.tick()
        world.working = how
        await _ticks(world, runner, 90)
        awake = world.database.rows[row.id]
        assert awake.desired_state is DesiredState.RUNNING
        assert awake.busy is not None
        assert awake.busy.reason == f"{who}, which does not answer"
        await _ticks(world, runner, 60)
        assert world.database.rows[row.id].desired_state is DesiredState.STANDBY, "a hung one is put to sleep too"

    run(world, main)


def test_a_helper_that_does_not_answer_hides_no_work_of_the_ide() -> None:
    world = World()

    async def main() -> None:
        row = await _started(world)
        there = world.instances.there[row.id]
        world.instances.there[row.id] = replace(there, workspaced=Upstream("w-1", socket_path="/run/w.sock"))
        ask = world.work

        async def work(upstream: Upstream, path: str, now: datetime) -> Work | None:
            if upstream.identity == "w-1":
                raise UpstreamUnavailable("no answer")
            return await ask(upstream, path, now)

        cast(Any, world).work = work
        runner = world.runner()
        await world.activity.unbroken()
        await runner.tick()
        await _ticks(world, runner)
        busy = world.database.rows[row.id].busy
        assert busy is not None
        assert busy.reason == "a test"

    run(world, main)


def test_work_is_seen_after_the_profile_of_its_workspace_was_removed() -> None:
    world = World()

    async def main() -> None:
        row = await _started(world)
        there = world.instances.there[row.id]
        world.instances.there[row.id] = replace(there, workspaced=there.upstream)
        runner = world.runner(TtlSettings(60, 600, 1e9, 30, busy_max_s=7_200))
        await world.activity.unbroken()
        await runner.tick()

        def removed(_: Workspace) -> tuple[str, AppProfile]:
            raise NotFound("there is no profile code-server")

        world.profile_of = removed
        await _ticks(world, runner)
        busy = world.database.rows[row.id].busy
        assert busy is not None
        assert busy.reason == "a test", "workspaced needs no profile"

        world.working = None
        await _ticks(world, runner)
        awake = world.database.rows[row.id]
        assert awake.desired_state is DesiredState.RUNNING, "its IDE may be working"
        assert awake.busy is not None
        assert awake.busy.reason == "the IDE, whose profile was removed"
        await _ticks(world, runner, 120)
        assert world.database.rows[row.id].desired_state is DesiredState.STANDBY

    run(world, main)
