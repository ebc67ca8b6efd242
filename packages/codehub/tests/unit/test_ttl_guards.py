"""Guards of the TTL runner whose absence would put work to sleep, or keep idle workspaces awake, on a virtual clock."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, cast

import pytest

from codehub.control.deps import TtlSettings
from codehub.domain.applied_template import AppliedTemplate
from codehub.domain.errors import BackendDown
from codehub.domain.model import (
    DesiredState,
    Phase,
)
from codehub.domain.ttl import ActivityCoverage, Span
from codehub.ports.fence import ignore_progress, no_fence
from codehub.ports.homes import HomeKey
from codehub.ports.instances import InstanceSpec, InstanceStatus
from testing.codehub.control_world import CTX, PROFILE, World, run
from testing.codehub.memory.database import MemoryDatabase
from testing.codehub.memory.world import Volume
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
        row = world.put(phase=Phase.RUNNING, home_ctx=CTX)
        world.homes.volumes[row.id] = Volume(CTX, {})
        spec = InstanceSpec(row.id, row.image_ref, PROFILE, world.homes.mount(HomeKey(row.id, row.home_store_key)))
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


@pytest.mark.parametrize("trouble", ["down", "node lost"])
def test_a_workspace_that_cannot_be_asked_is_not_put_to_sleep(trouble: str) -> None:
    """Its engine or its node does not answer: a program may be working in it."""
    world = World()

    async def main() -> None:
        row = world.put(phase=Phase.RUNNING, home_ctx=CTX)
        runner = world.runner()
        await world.activity.unbroken()
        await runner.tick()
        if trouble == "down":
            world.instances.away = True
        else:
            world.instances.there[row.id] = InstanceStatus(exists=True, unknown="its node does not answer")
        for _ in range(30):
            await asyncio.sleep(60)
            await runner.tick()
        assert world.database.rows[row.id].desired_state is DesiredState.RUNNING
        world.instances.away = False
        world.instances.there.clear()
        await runner.tick()
        assert world.database.rows[row.id].desired_state is DesiredState.STANDBY

    run(world, main)
