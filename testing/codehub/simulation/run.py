"""Runs one seed: users, coordinators and faults for a while; then the faults end, and everything must converge."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from datetime import timedelta
from itertools import count
from typing import Any, cast

from codehub.control.coordinator import run_coordinator
from codehub.control.deps import (
    ControllerSettings,
    CoordinatorDeps,
    CoordinatorSettings,
    GcSettings,
    TtlSettings,
)
from codehub.control.metrics import Metrics
from codehub.domain.actions import Action, Viewer, allowed_actions, cancel_target
from codehub.domain.applied_template import AppliedTemplate
from codehub.domain.continuing import continued
from codehub.domain.dev_image import DevImage
from codehub.domain.duplicate import FromArchive, NotNow, source_of
from codehub.domain.model import DesiredState, ErrorReason, Operation, Phase, Workspace
from codehub.domain.profiles import AppProfile
from codehub.domain.schedule import Schedule, shown_schedule
from codehub.domain.template_options import Size
from testing.codehub.memory.activity import MemoryActivity
from testing.codehub.memory.bus import MemoryBus
from testing.codehub.memory.leadership import MemoryElection
from testing.codehub.simulation.faults import Dice, Faulty, Process
from testing.codehub.simulation.gated import GatedElection
from testing.codehub.simulation.jobs import SimAsks
from testing.codehub.simulation.loop import VirtualClock, VirtualLoop, run_virtual
from testing.codehub.simulation.planted_bugs import planted
from testing.codehub.simulation.setup import SimDesk, SimLinks
from testing.codehub.simulation.transfers import OWNERS, transferred
from testing.codehub.simulation.world import PROCESS, Violation, World, recovered
from testing.codehub.workspaces import workspace

GRACE_S, RETENTION_S = 120.0, 400.0
FAULTS_FOR_S = 80.0
AWAY_S = 60.0
CONVERGES_WITHIN_S = 1_500.0
_PROFILE = AppProfile("code-server", health_timeout_s=20.0)
_WITH_ACTIVITY = replace(_PROFILE, activity_path="/activity")
_WANTED = {
    DesiredState.RUNNING: Phase.RUNNING,
    DesiredState.STANDBY: Phase.STANDBY,
    DesiredState.ARCHIVED: Phase.ARCHIVED,
    DesiredState.DELETED: Phase.DELETED,
}
_METRICS = Metrics()
_SETTINGS = CoordinatorSettings(
    node_id="node",
    controller=ControllerSettings(
        active_interval_s=2.0,
        active_duration_s=6.0,
        operation_timeout_s=120.0,
        max_parallel=4,
        deleted_retention_s=RETENTION_S,
    ),
    ttl=TtlSettings(interval_s=10.0, standby_s=40.0, archive_s=40.0, flush_interval_s=5.0),
    gc=GcSettings(interval_s=60.0, deleted_retention_s=RETENTION_S, orphan_grace_s=GRACE_S),
)
# So that workspaces are often idle while faults last.
_IMPATIENT = replace(_SETTINGS, ttl=TtlSettings(interval_s=2.0, standby_s=6.0, archive_s=40.0, flush_interval_s=1.0))


@dataclass(frozen=True, slots=True)
class Outcome:
    seed: int
    steps: int
    faults: dict[str, int]
    failure: str | None = None
    history: list[str] = field(default_factory=list)


class Simulation:
    def __init__(self, seed: int, loop: VirtualLoop, bugs: Collection[str]) -> None:
        self.dice = random.Random(seed)
        # A separate random generator, so that seeds that once found a bug keep their meaning.
        self.duplicates = random.Random(seed + 1_000_000)
        # Schedules and images of devcontainer.json are part of every fifth seed, for the same reason.
        self.planned = random.Random(seed + 2_000_000) if seed % 5 == 4 else None
        # Backends that hang, too.
        self.hangs = random.Random(seed + 3_000_000) if seed % 5 == 3 else None
        # Transfers, setup links, and continuing from an archive, too.
        self.owners = random.Random(seed + 4_000_000) if seed % 5 == 1 else None
        self.clock = VirtualClock(loop)
        self.world = World(self.clock, self.dice, grace_s=GRACE_S, retention_s=RETENTION_S, bugs=bugs)
        # Programs that work without a user, too. An IDE that does not answer counts as one.
        self.jobs = random.Random(seed + 5_000_000) if seed % 5 == 2 else None
        self.world.with_jobs = self.jobs is not None
        self.world.instances.with_helpers = self.owners is not None
        self.desk = SimDesk(self.world)
        self.activity = MemoryActivity()
        self.bus = MemoryBus()
        self.election = MemoryElection(self.world.database, self.clock)
        self.processes: dict[str, Process] = {}
        self.history: list[str] = []
        self.quiet = False
        self._ids = count(1)
        self._numbers = count(1)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            parts = [group.create_task(self._coordinator(name)) for name in ("a", "b")]
            others = [group.create_task(part) for part in (self._users(), self._inject_faults(), self._hang_parts())]
            await asyncio.sleep(FAULTS_FOR_S)
            for task in others:
                task.cancel()
            await self._end_faults()
            await self._converge()
            for task in parts:
                task.cancel()

    # The coordinators.

    async def _coordinator(self, name: str) -> None:
        while True:
            process = self.processes[name] = Process(name, self.dice, self.world.count)
            if self.quiet:
                process.odds = Dice.none()
            PROCESS.set(process)
            election = GatedElection(self.election, process, self.clock)
            settings = _SETTINGS if self.jobs is None else _IMPATIENT
            task = asyncio.create_task(run_coordinator(settings, self._deps(process, election), metrics=_METRICS))
            crashed = asyncio.create_task(process.crashed.wait())
            try:
                await asyncio.wait([task, crashed], return_when=asyncio.FIRST_COMPLETED)
                if task.done():
                    task.result()
            finally:
                process.dead = True
                self.world.steps += process.steps
                crashed.cancel()
                task.cancel()
                await asyncio.wait([task])
            self.note(f"{name} crashed")
            await asyncio.sleep(self.dice.uniform(0.1, 6))

    def _deps(self, process: Process, election: GatedElection) -> CoordinatorDeps:
        world = self.world
        store = cast(Any, Faulty(world.database, process, may_fail=False))
        return CoordinatorDeps(
            election=election,
            store=store,
            ttl_store=store,
            gc_store=store,
            schedule_store=store,
            disk_store=store,
            notifications=store,
            bus=cast(Any, Faulty(self.bus, process)),
            activity=cast(Any, Faulty(self.activity, process)),
            asks_activity=SimAsks(world, self.jobs),
            instances={"process": cast(Any, Faulty(world.instances, process))},
            homes={"local-dir": cast(Any, Faulty(world.homes, process))},
            archives=cast(Any, Faulty(world.archives, process)),
            profile_of=lambda row: (row.image_ref, _PROFILE if self.jobs is None else _WITH_ACTIVITY),
            clock=self.clock,
            new_id=lambda: f"id-{next(self._ids)}",
            random=self.dice.random,
            setup_desk=None if self.owners is None else cast(Any, Faulty(self.desk, process)),
            setup_links=None if self.owners is None else SimLinks(world),
        )

    # Users and faults.

    async def _users(self) -> None:
        for _ in range(self.dice.randint(1, 3)):
            self._create()
        touched: dict[str, float] = {}
        while True:
            await asyncio.sleep(self.dice.uniform(0.2, 3.5))
            self._act(touched)
            if touched and self.dice.random() < 0.4 and not self.activity.away:
                await self.activity.flush(touched)
                touched.clear()

    def _act(self, touched: dict[str, float]) -> None:
        rows = self.world.database.rows
        if len(rows) < 4 and self.dice.random() < 0.05:
            self._create()
        row = rows[self.dice.choice(sorted(rows))]
        roll = self.dice.random()
        if self.duplicates.random() < 0.08 and len(rows) < 6:
            self._duplicate(row)
        if self.planned is not None and self.planned.random() < 0.15 and row.phase is Phase.RUNNING:
            self._say(f"image for {row.id[-3:]}")
            image = DevImage(str(next(self._ids)), "localhost/dev:1", ())
            row = replace(row, dev_image_next=image, dev_image_auto=True)
            self.world.database.put(row)
        if self.owners is not None:
            row = self._change_owners(row)
        if row.deleted_at is not None:
            if roll < 0.2 and row.purged_at is None:
                self._say(f"undelete {row.id[-3:]}")
                back = recovered(row, self.clock.now(), DesiredState.ARCHIVED)
                self.world.database.put(replace(back, deleted_at=None))
        elif roll < 0.6:
            self.world.write(row.id)
            touched[row.id] = self.clock.now().timestamp()
        elif roll < 0.68 and (instead := cancel_target(row)) is not None:
            self._say(f"{row.id[-3:]} cancel {row.operation}")
            changed = replace(row, desired_state=instead, cancel_op_started_at=row.op_started_at)
            self.world.database.put(replace(changed, updated_at=self.clock.now()))
        elif row.desired_state is not DesiredState.DELETED:
            desired = self.dice.choices(list(DesiredState), [5.0, 3.0, 3.0, 0.5])[0]
            self._say(f"{row.id[-3:]} → {desired}")
            self.world.database.put(recovered(row, self.clock.now(), desired))

    def _create(self) -> None:
        id_ = f"01980000-0000-7000-8000-{next(self._numbers):012d}"
        desired = self.dice.choice([DesiredState.RUNNING, DesiredState.RUNNING, DesiredState.ARCHIVED])
        self._say(f"create {id_[-3:]} → {desired}")
        made = workspace(id_, desired=desired, created_at=self.clock.now())
        self.world.database.put(made if self.planned is None else replace(made, template=self._scheduled()))

    def _scheduled(self) -> AppliedTemplate:
        """Return a template whose workspaces start and stop at times while the faults last, and after them."""
        assert self.planned is not None
        now = self.clock.now()
        at = now + timedelta(seconds=self.planned.uniform(20, 150))
        stop = at + timedelta(minutes=self.planned.randint(1, 4))
        schedule = Schedule(at.time().replace(second=0, microsecond=0), frozenset(range(7)), timedelta(seconds=30))
        if self.planned.random() < 0.7:
            schedule = replace(schedule, stop=stop.time().replace(second=0, microsecond=0))
        self._say(f"scheduled {shown_schedule(schedule)}")
        size = Size(disk_bytes=self.planned.choice([None, 1 << 30]))
        return AppliedTemplate("t", 1, "code-server", "code-server", size=size, schedule=schedule)

    def _duplicate(self, original: Workspace) -> None:
        """Duplicate a workspace as `Workspaces.duplicate` does."""
        source = source_of(original)
        if isinstance(source, NotNow):
            return
        id_ = f"01980000-0000-7000-8000-{next(self._numbers):012d}"
        desired = self.duplicates.choice([DesiredState.RUNNING, DesiredState.ARCHIVED])
        self._say(f"duplicate {original.id[-3:]} as {id_[-3:]} → {desired}")
        copy = workspace(id_, desired=desired, created_at=self.clock.now())
        key = source.archive_key if isinstance(source, FromArchive) else None
        self.world.database.put(replace(copy, copy_of=original.id, archive_key=key))

    def _change_owners(self, row: Workspace) -> Workspace:
        """Transfer the workspace, or continue from its archive, as far as it is allowed. Return the row as it is now."""
        assert self.owners is not None
        roll, now, database = self.owners.random(), self.clock.now(), self.world.database
        if roll < 0.25 and (given := transferred(row, self.owners.choice(OWNERS), now, bugs=self.world.bugs)):
            self._say(f"transfer {row.id[-3:]} to {given.owner_user_id}: {given.desired_state}")
            database.put(given)
        elif Action.CONTINUE_FROM_ARCHIVE in allowed_actions(row, Viewer()) and len(database.rows) < 8:
            id_ = f"01980000-0000-7000-8000-{next(self._numbers):012d}"
            self._say(f"continue {row.id[-3:]} as {id_[-3:]}")
            self.world.continued(row, continued(row, id_, now))
            database.put(replace(row, desired_state=DesiredState.STANDBY, updated_at=now))
        return database.rows[row.id]

    async def _inject_faults(self) -> None:
        """Make backends and Redis unavailable and available again; make instances end or stop answering."""
        world = self.world
        while True:
            await asyncio.sleep(self.dice.uniform(2, 18))
            what = self.dice.randrange(10)
            world.count(f"weather {what}")
            away_s = self.dice.uniform(1, 45)
            if what < 5:
                part: Any = [world.instances, world.homes, world.archives, self.activity, self.bus][what]
                self._say(f"{type(part).__name__} away")
                part.away = True
                asyncio.get_running_loop().call_later(away_s, setattr, part, "away", False)
            elif what == 5:
                self.activity.wipe()
            elif what == 6:
                world.database.cut_listeners()
            elif what == 9:
                self._say("the homes' disk is full")
                world.homes.full = "/homes"
                asyncio.get_running_loop().call_later(away_s, setattr, world.homes, "full", "")
            elif running := sorted(id_ for id_ in world.instances.there if world.instances.is_running(id_)):
                victim = self.dice.choice(running)
                if what == 7:
                    world.instances.end(victim, "OOMKilled")
                else:
                    world.instances.deaf.add(victim)
                    asyncio.get_running_loop().call_later(2 * away_s, world.instances.deaf.discard, victim)

    async def _hang_parts(self) -> None:
        """Let backends accept calls and answer none for a while."""
        while self.hangs is not None:
            await asyncio.sleep(self.hangs.uniform(5, 30))
            part = self.hangs.choice([self.world.instances, self.world.homes, self.world.archives])
            self._say(f"{type(part).__name__} hangs")
            self.world.count("hang")
            part.hang()
            asyncio.get_running_loop().call_later(self.hangs.uniform(5, 60), part.resume)

    async def _end_faults(self) -> None:
        """End all faults. Frozen processes continue, and act late."""
        self._say("calm")
        self.quiet = True
        world = self.world
        world.half_done = world.gap = 0.0
        world.homes.full = ""
        world.instances.deaf.clear()
        for part in (world.instances, world.homes, world.archives, self.activity, self.bus):
            part.away = False
        for backend in (world.instances, world.homes, world.archives):
            backend.resume()
        for process in self.processes.values():
            process.odds = Dice.none()
            process.thaw()

    async def _converge(self) -> None:
        """Wait until each workspace reaches its desired state.

        Owners recover workspaces in ERROR, as they would in reality. Homes that seem lost while the homes' directory is
        unavailable are found again without intervention.
        """
        self._say("the homes are moved away, and back")
        self.world.homes.hidden = True
        await asyncio.sleep(AWAY_S)
        self.world.homes.hidden = False
        deadline = self.clock.monotonic() + CONVERGES_WITHIN_S
        while not self._converged():
            late = [
                f"{row.id[-3:]} {row.phase} {row.operation} → {row.desired_state} {row.error_reason}"
                for row in self.world.database.rows.values()
            ]
            self.world.must(self.clock.monotonic() < deadline, f"does not converge: {late}")
            await asyncio.sleep(5)
            for row in list(self.world.database.rows.values()):
                lost = row.error_reason is ErrorReason.DATA_LOST
                if row.phase is Phase.ERROR and row.error_reason is not None and not lost:
                    # A copy is given up if its original never rests.
                    never = row.copy_of is not None and row.archive_key is None
                    desired = DesiredState.DELETED if never else row.desired_state
                    self.world.database.put(recovered(row, self.clock.now(), desired))
        for id_ in list(self.world.database.rows):
            self.world.check(id_)
            self.world.write(id_)

    def _converged(self) -> bool:
        return all(
            row.phase is _WANTED[row.desired_state]
            and row.operation is Operation.NONE
            and row.blocked is None
            and (row.dev_image_next is None or row.phase is not Phase.RUNNING)
            for row in self.world.database.rows.values()
        )

    def note(self, what: str) -> None:
        self._say(what)

    def _say(self, what: str) -> None:
        self.history.append(f"{self.clock.monotonic() - 1_000:8.2f} {what}")


def run_seed(seed: int, *, bugs: Collection[str] = ()) -> Outcome:
    """Run one seed to its end. The same seed gives exactly the same run."""
    loop = VirtualLoop()
    simulation = Simulation(seed, loop, bugs)
    failure = None
    with planted(bugs):
        try:
            run_virtual(simulation.run(), loop)
        except BaseExceptionGroup as errors:
            failure = _describe(errors)
        except Violation as violation:
            failure = str(violation)
    world = simulation.world
    if world.violations:
        failure = world.violations[0]
    return Outcome(seed, world.steps, world.faults, failure, simulation.history)


def _describe(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}"
