"""Guards of the control plane whose absence would cost data or work, one by one, on a virtual clock."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import nullcontext
from dataclasses import replace
from datetime import datetime
from typing import Any, cast

import pytest

from codehub.control.act import Actor, Task
from codehub.control.deps import GcSettings
from codehub.control.gc_runner import GcRunner
from codehub.control.guarded_backends import GuardedBackends
from codehub.control.health import HealthTracker
from codehub.control.heartbeat import Heartbeat
from codehub.control.metrics import Metrics
from codehub.domain.busy import Work
from codehub.domain.dev_image import DevImage
from codehub.domain.errors import Terminal
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
from codehub.domain.stores import StoreRecord
from codehub.ports.archives import ArchivePlace
from codehub.ports.fence import Fence, Report, ignore_progress, no_fence
from codehub.ports.homes import ArchiveReceipt, HomeKey, HomeState, HomeStatus
from codehub.ports.instances import InstanceSpec, Upstream
from testing.codehub.control_world import CTX, PROFILE, FakeLease, World, run
from testing.codehub.memory.database import MemoryDatabase
from testing.codehub.memory.world import MemoryHomes, MemoryInstances, Volume
from testing.codehub.workspaces import workspace


class _Homes:
    """A store of homes at some place, with the id of another installation or of this one."""

    kind, place, takes_new = "homes", "/srv/elsewhere", True

    def __init__(self) -> None:
        self.id = "another"

    async def read_id(self) -> str:
        return self.id

    async def write_id(self, store_id: str) -> None:
        raise AssertionError("a store with an id is not claimed")

    def expect(self, store_id: str) -> None: ...

    def hold(self, why: str) -> None: ...


def test_a_coordinator_that_refuses_to_lead_says_why_until_it_leads() -> None:
    homes = _Homes()
    world = World(stores=[homes])

    async def main() -> None:
        world.database.stores["homes"] = StoreRecord("ours", "/srv/homes")
        world.put()
        async with world.leading():
            await asyncio.sleep(60)
            assert "homes of this installation are at /srv/homes" in world.database.refusals["node"]
            assert b"codehub_coordinator_refuses_to_lead 1.0" in world.metrics.render()
            assert world.database.rows[workspace().id].phase is Phase.PENDING, "nothing was done"
            homes.id = "ours"
            await world.until(lambda row: row.phase is Phase.RUNNING)
            assert world.database.refusals == {}
            assert b"codehub_coordinator_refuses_to_lead 0.0" in world.metrics.render()

    run(world, main)


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


def test_a_workspace_whose_probe_fails_unexpectedly_does_not_end_the_term() -> None:
    """An IDE once answered with a number that Python refuses to read, and no workspace of anybody was started any more."""

    class Failing(MemoryInstances):
        hostile = False
        failed = 0

        async def probe(self, workspace_id: str, profile: AppProfile) -> bool:
            if self.hostile:
                self.failed += 1
                raise ValueError("Exceeds the limit (4300 digits) for integer string conversion")
            return await super().probe(workspace_id, profile)

    instances = Failing()
    world = World(instances=instances)

    async def main() -> None:
        world.put()
        async with world.leading():
            await world.until(lambda row: row.phase is Phase.RUNNING)
            term = world.database.epoch
            instances.hostile = True
            await asyncio.sleep(3_600)
            assert instances.failed > 1
            assert world.database.epoch == term

    run(world, main)


def test_an_event_that_cannot_be_read_does_not_end_the_term() -> None:
    """An engine's event holds all labels of an image: with 130 KB of them, its line is longer than the client reads."""

    class Failing(MemoryInstances):
        failed = 0

        async def watch(self) -> AsyncIterator[str]:
            self.failed += 1
            if self.failed:
                raise ValueError("Chunk too big")
            yield ""

    instances = Failing()
    world = World(instances=instances)

    async def main() -> None:
        world.put()
        async with world.leading():
            await world.until(lambda row: row.phase is Phase.RUNNING)
            term = world.database.epoch
            await asyncio.sleep(3_600)
            assert instances.failed > 1
            assert world.database.epoch == term

    run(world, main)


OTHER = "01980000-0000-7000-8000-0000000000aa"


def test_a_workspace_that_cannot_be_queried_does_not_keep_the_others_awake() -> None:
    class Hostile(World):
        async def work(self, upstream: Upstream, path: str, now: datetime) -> Work | None:
            await super().work(upstream, path, now)
            raise ValueError("an answer that Python refuses to read")

    world = Hostile()

    async def main() -> None:
        row, other = [world.put(id_, phase=Phase.RUNNING, home_ctx=CTX) for id_ in (workspace().id, OTHER)]
        mount = world.homes.mount(HomeKey(row.id, row.home_store_key))
        await world.instances.start(InstanceSpec(row.id, row.image_ref, PROFILE, mount), ignore_progress, no_fence)
        runner = world.runner()
        await world.activity.unbroken()
        for _ in range(30):
            await runner.tick()
            await asyncio.sleep(60)
        assert world.probed, "only the hostile one has an instance that is asked"
        assert world.database.rows[other.id].desired_state is DesiredState.STANDBY

    run(world, main)


def test_a_home_that_cannot_be_measured_does_not_keep_the_others_from_it() -> None:
    class Hostile(MemoryHomes):
        failed = 0

        async def size(self, home: HomeKey) -> int | None:
            if home.workspace_id == workspace().id:
                self.failed += 1
                raise RecursionError("maximum recursion depth exceeded")
            return await super().size(home)

    world = World()
    homes = world.homes = Hostile(world.archives)

    async def main() -> None:
        world.put()
        world.put(OTHER)
        async with world.leading():
            for id_ in (workspace().id, OTHER):
                await world.until(lambda row: row.phase is Phase.RUNNING, id_=id_)
            await world.until(lambda row: row.disk_bytes is not None, id_=OTHER)
            assert homes.failed > 0, "it came first"

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


def test_an_archive_that_was_replaced_in_the_store_is_not_restored() -> None:
    """Whoever can write to the store could otherwise show one user's files to another, or take a workspace back in time."""
    world = World()

    async def main() -> None:
        world.put()
        async with world.leading():
            await world.until(lambda row: row.phase is Phase.RUNNING)
            world.database.put(replace(world.database.rows[workspace().id], desired_state=DesiredState.ARCHIVED))
            await world.until(lambda row: row.phase is Phase.ARCHIVED)
            ((_, stored),) = world.archives.places.items()
            own, stored.files = stored.files, {"notes": b"of somebody else"}
            world.database.put(replace(world.database.rows[workspace().id], desired_state=DesiredState.RUNNING))
            row = await world.until(lambda row: row.phase in (Phase.ERROR, Phase.RUNNING))
            assert row.error_reason is ErrorReason.ARCHIVE_CORRUPTED
            assert workspace().id not in world.homes.volumes
            assert stored.files != own, "nothing was written to the store"

    run(world, main)


@pytest.mark.parametrize(
    ("is_usable", "attempts", "started"), [(True, 0, "dev:1"), (False, 0, "template:1"), (True, 1, "template:1")]
)
def test_an_image_of_devcontainer_json_is_checked_again_at_each_start(
    is_usable: bool, attempts: int, started: str
) -> None:
    """An administrator may have forbidden its base since it was built."""
    world = World()
    asked: list[DevImage] = []

    class Images:
        async def usable(self, image: DevImage) -> bool:
            asked.append(image)
            return is_usable

    async def unused(*_: object) -> None:
        raise AssertionError("nothing else is needed for a start")

    async def main() -> None:
        world.homes.volumes[workspace().id] = Volume(CTX, {})
        backends = GuardedBackends(
            {"process": world.instances}, {"local-dir": world.homes}, world.archives, world.clock
        )
        actor = Actor(
            backends,
            HealthTracker(world.clock),
            lambda row: ("template:1", PROFILE),
            world.clock,
            lambda: "id",
            lambda: 0.5,
            unused,
            dev_images=cast(Any, Images()),
        )
        image = DevImage("d", "dev:1", ("node:22",))
        row = replace(workspace(), operation=Operation.STARTING, home_ctx=CTX, dev_image=image, error_count=attempts)
        await actor.act(Task(row, no_fence, ignore_progress, unused, lambda direction: nullcontext()))
        assert world.instances.there[row.id].spec_digest.split()[0] == started
        assert asked == ([] if attempts else [image])

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
        world.homes.volumes[workspace().id] = Volume(CTX, {"notes": b"half of it"})
        backends = GuardedBackends(
            {"process": world.instances}, {"local-dir": world.homes}, world.archives, world.clock
        )
        actor = Actor(
            backends,
            HealthTracker(world.clock),
            lambda row: ("", PROFILE),
            world.clock,
            lambda: "id",
            lambda: 0.5,
            nobody,
        )
        row = replace(
            workspace(desired=DesiredState.DELETED), operation=Operation.DELETING, home_ctx=CTX, archive_op_id="op-1"
        )

        async def record(receipt: ArchiveReceipt, is_current: bool) -> None:
            raise AssertionError("nothing can be archived")

        with pytest.raises(Terminal):
            await actor.act(Task(row, no_fence, ignore_progress, record, lambda direction: nullcontext()))
        assert workspace().id in world.homes.volumes

    run(world, main)


def test_the_gc_asks_once_more_right_before_it_removes() -> None:
    class Changing(MemoryDatabase):
        reads = 0

        async def claims(self, ids: Collection[str], keep: int) -> Mapping[str, Claim]:
            found = await super().claims(ids, keep)
            self.reads += 1
            # Between the two reads somebody recovered the workspace from this very archive.
            if self.reads > 1:
                return {id_: replace(claim, archive_key=place.archive_key) for id_, claim in found.items()}
            return found

    world = World(database=Changing())
    place = ArchivePlace(workspace().id, "op-1", f"{workspace().id}/op-1/home.tar.zst")

    async def main() -> None:
        seen = Conditions(volume_ready=Condition(ConditionStatus.TRUE, "Ready"))
        world.put(phase=Phase.STANDBY, home_ctx=CTX, conditions=seen)
        world.archives.put(place, {"notes": b"kept"})
        heartbeat = Heartbeat("gc_runner", world.clock, Metrics(), no_fence)
        gc = GcRunner(
            world.database,
            world.archives,
            cast(Any, FakeLease(world.database.epoch)),
            world.clock,
            GcSettings(orphan_grace_s=0),
            heartbeat,
        )
        await gc.tick()
        assert world.archives.find(place.archive_key) == {"notes": b"kept"}

    run(world, main)
