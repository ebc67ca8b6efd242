"""A term as a whole, on a virtual clock: what one component's trouble does to the others and to leadership."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise
from typing import Any, cast

import pytest

from codehub.control.coordinator import run_coordinator
from codehub.control.deps import CoordinatorDeps, CoordinatorSettings, TtlSettings
from codehub.control.metrics import Metrics
from codehub.control.ttl_runner import TtlRunner
from codehub.domain.actions import stop_target
from codehub.domain.model import DesiredState, ErrorReason, Operation, Phase, Workspace
from codehub.domain.profiles import AppProfile
from codehub.ports.fence import Fence
from codehub.ports.homes import HomeKey
from testing.codehub.memory.activity import MemoryActivity
from testing.codehub.memory.bus import MemoryBus
from testing.codehub.memory.database import MemoryDatabase
from testing.codehub.memory.leadership import MemoryElection
from testing.codehub.memory.world import MemoryArchives, MemoryHomes, MemoryInstances
from testing.codehub.simulation.loop import VirtualClock, VirtualLoop, run_virtual
from testing.codehub.workspaces import workspace

PROFILE = AppProfile("code-server")
OTHER = "01980000-0000-7000-8000-000000000002"


class SlowToStop(MemoryInstances):
    """Takes ten seconds to end, once."""

    async def stop(self, workspace_id: str, fence: Fence) -> None:
        await asyncio.sleep(10)
        await super().stop(workspace_id, fence)


class Term:
    def __init__(self, loop: VirtualLoop) -> None:
        self.clock = VirtualClock(loop)
        self.database = MemoryDatabase()
        self.activity, self.bus = MemoryActivity(), MemoryBus()
        self.metrics = Metrics()
        archives = MemoryArchives()
        store = cast(Any, self.database)
        self.deps = CoordinatorDeps(
            election=MemoryElection(self.database, self.clock),
            store=store,
            ttl_store=store,
            gc_store=store,
            schedule_store=store,
            disk_store=store,
            notifications=store,
            bus=self.bus,
            activity=self.activity,
            asks_activity=cast(Any, None),
            instances={"process": SlowToStop()},
            homes={"local-dir": MemoryHomes(archives)},
            archives=archives,
            profile_of=lambda row: (row.image_ref, PROFILE),
            clock=self.clock,
            new_id=iter(map(str, range(1_000))).__next__,
            random=lambda: 0.5,
        )

    def error_of(self, component: str) -> object:
        return self.database.components[component]["last_error"]

    def counted(self, name: str, **labels: str) -> float:
        return self.metrics.registry.get_sample_value(f"codehub_coordinator_{name}", labels) or 0.0


def during_a_term(scenario: Callable[[Term], Awaitable[None]], homes: MemoryHomes | None = None) -> None:
    loop = VirtualLoop()

    async def run() -> None:
        term = Term(loop)
        if homes is not None:
            term.deps = replace(term.deps, homes={"local-dir": homes}, archives=homes.archives)
        settings = CoordinatorSettings("node", ttl=TtlSettings(interval_s=5.0))
        leading = asyncio.create_task(run_coordinator(settings, term.deps, metrics=term.metrics))
        await asyncio.sleep(10)
        await scenario(term)
        leading.cancel()
        await asyncio.wait([leading])

    run_virtual(run(), loop)


def test_a_component_that_ends_gives_up_leadership_which_is_sought_again(monkeypatch: pytest.MonkeyPatch) -> None:
    run, terms = TtlRunner.run, 0

    async def ends_in_its_first_term(self: TtlRunner) -> None:
        nonlocal terms
        terms += 1
        if terms > 1:
            await run(self)

    monkeypatch.setattr(TtlRunner, "run", ends_in_its_first_term)

    async def scenario(term: Term) -> None:
        assert term.database.epoch == 2
        assert term.counted("leader_changes_total", what="won") == 2
        assert term.counted("leader_changes_total", what="lost") == 1
        assert term.counted("is_leader") == 1

    during_a_term(scenario)


def test_a_failing_tick_is_skipped_and_reported_and_the_others_go_on() -> None:
    async def scenario(term: Term) -> None:
        term.activity.away = True
        term.database.put(replace(workspace(created_at=term.clock.now()), last_access_at=term.clock.now()))
        await asyncio.sleep(20)
        assert term.error_of("ttl_runner") == "the activity store is away"
        assert term.error_of("workspace_controller") is None
        row = term.database.rows[workspace().id]
        assert (row.phase, row.operation) == (Phase.RUNNING, Operation.NONE), "the controller goes on"
        assert term.counted("ticks_total", component="ttl_runner", outcome="failed") > 0
        assert term.counted("operations_total", operation="STARTING", outcome="done") == 1
        assert term.database.epoch == 1, "leadership is kept"
        term.activity.away = False
        await asyncio.sleep(20)
        assert term.error_of("ttl_runner") is None

    during_a_term(scenario)


def test_the_event_listener_says_when_it_cannot_listen_or_publish_and_when_it_can_again() -> None:
    async def scenario(term: Term) -> None:
        assert term.error_of("event_listener") is None
        term.database.cut_listeners()
        await asyncio.sleep(0.5)
        await asyncio.sleep(20)
        term.database.put(workspace(created_at=term.clock.now()))
        await asyncio.sleep(6)
        assert term.error_of("event_listener") is None, "one failure is not reported for ever"
        term.bus.away = True
        term.database.put(replace(term.database.rows[workspace().id], name="changed"))
        await asyncio.sleep(10)
        assert term.error_of("event_listener") == "hints are dropped: the bus is away"
        term.bus.away = False
        await asyncio.sleep(10)
        term.database.put(replace(term.database.rows[workspace().id], name="again"))
        await asyncio.sleep(6)
        assert term.error_of("event_listener") is None

    during_a_term(scenario)


def test_traffic_that_asks_for_running_again_while_it_stops_is_taken_and_acted_on_when_it_has_stopped() -> None:
    async def scenario(term: Term) -> None:
        now = term.clock.now()
        term.database.put(replace(workspace(created_at=now), last_access_at=now))
        await asyncio.sleep(5)

        def row() -> Workspace:
            return term.database.rows[workspace().id]

        assert row().phase is Phase.RUNNING
        term.database.put(replace(row(), desired_state=DesiredState.STANDBY))
        await asyncio.sleep(5)
        assert row().operation is Operation.STOPPING
        term.database.put(replace(row(), desired_state=DesiredState.RUNNING, last_access_at=term.clock.now()))
        await asyncio.sleep(2)
        assert row().operation is Operation.STOPPING, "what is under way is not preempted (INV-4)"
        await asyncio.sleep(10)
        assert (row().phase, row().operation, row().desired_state) == (
            Phase.RUNNING,
            Operation.NONE,
            DesiredState.RUNNING,
        )
        kinds = [event.kind for _, event in term.database.events[workspace().id]]
        assert kinds[-4:] == ["operation_started", "operation_done"] * 2, "stopped, then started"

    during_a_term(scenario)


def test_a_stop_ends_what_still_runs_in_error() -> None:
    async def scenario(term: Term) -> None:
        instances, id_ = term.deps.instances["process"], workspace().id
        now = term.clock.now()
        term.database.put(replace(workspace(created_at=now), last_access_at=now))
        await asyncio.sleep(5)
        assert term.database.rows[id_].phase is Phase.RUNNING
        failed = replace(term.database.rows[id_], phase=Phase.ERROR, error_reason=ErrorReason.TIMEOUT, error_count=1)
        term.database.put(failed)
        await asyncio.sleep(60)
        assert (term.database.rows[id_].phase, (await instances.status(id_)).running) == (Phase.ERROR, True)
        # As the service does.
        stopped = replace(
            term.database.rows[id_], error_reason=None, error_count=0, desired_state=stop_target(failed)
        )
        term.database.put(stopped)
        await asyncio.sleep(60)
        assert (term.database.rows[id_].phase, (await instances.status(id_)).running) == (Phase.STANDBY, False)

    during_a_term(scenario)


def test_homes_are_measured_again_only_after_they_could_have_changed() -> None:
    async def scenario(term: Term) -> None:
        homes = cast(MemoryHomes, term.deps.homes["local-dir"])
        database, id_ = term.database, workspace().id
        now = term.clock.now()
        database.put(replace(workspace(created_at=now), last_access_at=now, keep_awake_until=now + timedelta(days=1)))
        await asyncio.sleep(60)
        assert database.rows[id_].disk_bytes == 0
        homes.volumes[id_].files["large"] = bytes(3000)
        await asyncio.sleep(100)
        assert database.rows[id_].disk_bytes == 3000
        homes.volumes[id_].files["larger"] = bytes(2000)
        await asyncio.sleep(100)
        assert database.rows[id_].disk_bytes == 5000, "also if it was still being written when it was measured"

        homes.away = True
        before = database.rows[id_].disk_checked_at
        await asyncio.sleep(700)
        assert database.rows[id_].disk_bytes == 5000, "a backend that is away says nothing about the size"
        assert database.rows[id_].disk_checked_at != before
        assert term.error_of("disk_runner") is None
        homes.away = False

        database.put(replace(database.rows[id_], desired_state=DesiredState.STANDBY))
        await asyncio.sleep(700)
        asleep = database.rows[id_]
        assert asleep.phase is Phase.STANDBY
        assert asleep.disk_checked_at is not None
        assert asleep.disk_checked_at > asleep.phase_changed_at
        await asyncio.sleep(700)
        assert database.rows[id_].disk_checked_at == asleep.disk_checked_at, "nothing changes while it sleeps"

    during_a_term(scenario)


def test_a_home_that_takes_long_is_measured_less_often_and_an_unknown_size_even_less() -> None:
    unknown = "01980000-0000-7000-8000-000000000003"

    class Large(MemoryHomes):
        def __init__(self) -> None:
            super().__init__(MemoryArchives())
            self.measured: dict[str, list[float]] = {}

        async def size(self, home: HomeKey) -> int | None:
            self.measured.setdefault(home.workspace_id, []).append(asyncio.get_running_loop().time())
            await asyncio.sleep(4 if home.workspace_id == OTHER else 0.01)
            return None if home.workspace_id == unknown else 1

    homes = Large()

    async def scenario(term: Term) -> None:
        now = term.clock.now()
        for id_ in (workspace().id, OTHER, unknown):
            awake = replace(workspace(id_, created_at=now), last_access_at=now)
            term.database.put(replace(awake, keep_awake_until=now + timedelta(days=1)))
        await asyncio.sleep(3600)
        pauses = {id_: [b - a for a, b in pairwise(at)] for id_, at in homes.measured.items()}
        assert 60 <= min(pauses[workspace().id]) <= max(pauses[workspace().id]) < 100
        assert 200 <= min(pauses[OTHER]) <= max(pauses[OTHER]) < 240, "50 times as long as it took"
        assert 600 <= min(pauses[unknown]) <= max(pauses[unknown]) < 640

    during_a_term(scenario, homes=homes)


def test_measuring_many_homes_takes_a_small_part_of_the_time_and_leaves_out_none() -> None:
    class Busy(MemoryHomes):
        def __init__(self) -> None:
            super().__init__(MemoryArchives())
            self.measured: dict[str, list[float]] = {}

        async def size(self, home: HomeKey) -> int | None:
            self.measured.setdefault(home.workspace_id, []).append(asyncio.get_running_loop().time())
            await asyncio.sleep(1)
            return 1

    homes = Busy()

    async def scenario(term: Term) -> None:
        now = term.clock.now()
        ids = [f"01980000-0000-7000-8000-{number:012}" for number in range(60)]
        for id_ in ids:
            awake = replace(workspace(id_, created_at=now), last_access_at=now)
            term.database.put(replace(awake, keep_awake_until=now + timedelta(days=1)))
        await asyncio.sleep(3600)
        assert homes.measured.keys() == set(ids)
        pauses = [b - a for at in homes.measured.values() for a, b in pairwise(at)]
        assert max(pauses) < 700, "each at least every ten minutes"
        assert sum(map(len, homes.measured.values())) < 0.15 * 3600, "of one second each"

    during_a_term(scenario, homes=homes)


def test_a_home_that_takes_too_long_is_of_unknown_size_and_does_not_keep_the_others_waiting() -> None:
    class Endless(MemoryHomes):
        async def size(self, home: HomeKey) -> int | None:
            if home.workspace_id == workspace().id:
                await asyncio.Event().wait()
            return await super().size(home)

    async def scenario(term: Term) -> None:
        for id_ in (workspace().id, OTHER):
            database_row = workspace(id_, created_at=term.clock.now())
            term.database.put(replace(database_row, last_access_at=term.clock.now(), disk_bytes=1))
        await asyncio.sleep(400)
        rows = term.database.rows
        assert (rows[workspace().id].disk_bytes, rows[OTHER].disk_bytes) == (None, 0)

    during_a_term(scenario, homes=Endless(MemoryArchives()))
