"""The simulated world: in-memory twins that check the contracts at every change and remember what users wrote."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Collection, Sequence
from contextvars import ContextVar
from dataclasses import replace
from datetime import datetime, timedelta

from codehub.domain.disk import disk_limit
from codehub.domain.errors import Conflict, Transient
from codehub.domain.gc import archive_key_of
from codehub.domain.limits import RunningLimits
from codehub.domain.model import DesiredState, ErrorReason, HomeCtx, Operation, Phase, Workspace
from codehub.domain.transitions import EDGES, is_cancelled
from codehub.ports.archives import ArchivePlace
from codehub.ports.clock import Clock
from codehub.ports.control_store import Change, Versioned
from codehub.ports.fence import Fence, Report
from codehub.ports.homes import ArchiveReceipt, HomeKey
from testing.codehub.memory.database import MemoryDatabase
from testing.codehub.memory.world import Files, MemoryArchives, MemoryHomes, MemoryInstances, StoredArchive, Volume
from testing.codehub.simulation.faults import Process

# The process that makes the call; set when a process starts.
PROCESS: ContextVar[Process] = ContextVar("process")

_ALLOWED = {(edge.operation, desired) for edge in EDGES for desired in edge.desired}
_NEVER = (
    ErrorReason.DATA_LOST,
    ErrorReason.ARCHIVE_CORRUPTED,
    ErrorReason.CONTAINER_WITHOUT_VOLUME,
    # These errors are waited out and never final.
    ErrorReason.OUT_OF_SPACE,
    ErrorReason.UNREACHABLE,
)


class Violation(AssertionError):
    """Raised when a contract was broken."""


class World:
    """Everything outside the coordinators."""

    def __init__(
        self, clock: Clock, dice: random.Random, *, grace_s: float, retention_s: float, bugs: Collection[str]
    ):
        self.clock = clock
        self.dice = dice
        self.grace = timedelta(seconds=grace_s)
        self.retention = timedelta(seconds=retention_s)
        self.bugs = frozenset(bugs)
        self.truth: dict[str, dict[str, bytes]] = {}
        # Every state that a home ever had.
        self.states: dict[str, list[dict[str, bytes]]] = {}
        self.violations: list[str] = []
        self.steps = 0
        self.faults: dict[str, int] = {}
        self.with_jobs = False
        self.half_done = 0.02
        # Instance → whose secrets it received.
        self.received: dict[str, str] = {}
        # How often a leader freezes right before a restore's effect.
        self.gap = 0.15
        self.archives = SimArchives(self)
        self.homes = SimHomes(self)
        self.instances = SimInstances(self)
        self.database = SimDatabase(self)

    def count(self, fault: str) -> None:
        self.faults[fault] = self.faults.get(fault, 0) + 1

    def must(self, holds: bool, what: str) -> None:
        if not holds:
            self.violations.append(what)
            raise Violation(what)

    def check(self, workspace_id: str) -> None:
        """Check after every step that the container has its volume and that no byte written by a user is lost."""
        self.steps += 1
        if self.instances.is_running(workspace_id):
            self.must(workspace_id in self.homes.volumes, f"6: {workspace_id} runs without a volume")
        wrote, row = self.truth.get(workspace_id), self.database.rows.get(workspace_id)
        if wrote is None or row is None or row.purged_at is not None:
            return
        volume = self.homes.volumes.get(workspace_id)
        if volume is not None and volume.files == wrote:
            return
        kept = None if row.archive_key is None else self.archives.find(row.archive_key)
        self.must(kept == wrote, f"lost: what was written in {workspace_id} is in no volume and no committed archive")

    def copied(self, copy: Workspace) -> None:
        """Check that a copy starts with one complete state of its original, from when it was at rest."""
        assert copy.copy_of is not None
        assert copy.archive_key is not None
        files = self.archives.find(copy.archive_key)
        states = self.states.get(copy.copy_of, [{}])
        self.must(files in states, f"{copy.id} began with files that {copy.copy_of} never had at rest")
        self.truth[copy.id] = dict(files or {})
        self.note_state(copy.id)

    def continued(self, source: Workspace, copy: Workspace) -> None:
        """Insert a workspace that continues from the last archive of another, and check that it is there."""
        self.count("continue")
        files = self.archives.find(source.archive_key or "")
        self.must(files is not None, f"{copy.id} continues from an archive that is gone")
        self.truth[copy.id] = dict(files or {})
        self.note_state(copy.id)
        self.database.put(copy)

    def receive(self, workspace_id: str, instance: str, whose: str) -> None:
        """Check that an instance receives the secrets of its owner, and never those of two people."""
        self.count("secrets sent")
        owner = self.database.rows[workspace_id].owner_user_id
        self.must(whose == owner, f"secrets: {workspace_id} of {owner} receives those of {whose}")
        before = self.received.setdefault(instance, whose)
        self.must(before == whose, f"secrets: {instance} receives those of {before} and of {whose}")

    def transferred(self, workspace: Workspace) -> None:
        """Check that nothing is left running that knows the secrets of a previous owner."""
        self.count("transfer")
        there = self.instances.there.get(workspace.id)
        whose = self.received.get(there.identity) if there is not None and there.running else None
        known = whose not in (None, workspace.owner_user_id)
        self.must(not known, f"secrets: {workspace.id} comes to {workspace.owner_user_id} with those of {whose}")

    def put_to_sleep(self, workspace_id: str) -> None:
        """Check that no program works in a workspace that nobody uses."""
        there = self.instances.there.get(workspace_id)
        if self.with_jobs and there is not None and there.running:
            self.count("put to sleep")
            self.must(not works(there.identity), f"busy: {workspace_id} is put to sleep while a program works in it")

    def note_state(self, workspace_id: str) -> None:
        self.states.setdefault(workspace_id, [{}]).append(dict(self.truth.get(workspace_id, {})))

    def write(self, workspace_id: str) -> None:
        """Write as a user, after checking that everything is unchanged."""
        volume = self.homes.volumes.get(workspace_id)
        if volume is None or not self.instances.is_running(workspace_id):
            return
        wrote = self.truth.setdefault(workspace_id, {})
        self.must(volume.files == wrote, f"stale: {workspace_id} shows another home than was left")
        name, content = f"f{self.dice.randrange(4)}", str(self.dice.random()).encode()
        volume.files[name] = wrote[name] = content
        self.note_state(workspace_id)
        self.check(workspace_id)


class SimInstances(MemoryInstances):
    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world
        self.with_helpers = False

    def is_running(self, workspace_id: str) -> bool:
        status = self.there.get(workspace_id)
        return status is not None and status.running

    def hint(self, workspace_id: str) -> None:
        there = self.there.get(workspace_id)
        if self.with_helpers and there is not None:
            self.there[workspace_id] = replace(there, workspaced=there.upstream)
        super().hint(workspace_id)
        self._world.check(workspace_id)


class SimArchives(MemoryArchives):
    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world

    async def remove(self, place: ArchivePlace, fence: Fence) -> None:
        world, row = self._world, self._world.database.rows[place.workspace_id]
        if row.purged_at is None:
            kept = (await world.database.claims([row.id], 2))[row.id].kept
            safe = place.archive_key != row.archive_key and place.op_id not in kept and row.phase is not Phase.ERROR
            world.must(safe and row.deleted_at is None, f"9: the GC removes the protected {place.archive_key}")
        others = (one for one in world.database.rows.values() if one.id != row.id and one.purged_at is None)
        copies = [one.id for one in others if one.archive_key == place.archive_key]
        world.must(not copies, f"9: the GC removes what {copies} begin from")
        seen = {noted.archive_key: at for noted, at in await world.database.orphans()}
        since = seen.get(place.archive_key)
        waited = since is not None and world.clock.now() - since >= world.grace
        world.must(waited, f"9: the GC removes {place.archive_key} without its grace")
        await super().remove(place, fence)
        world.check(place.workspace_id)


class SimHomes(MemoryHomes):
    def __init__(self, world: World) -> None:
        super().__init__(world.archives)
        self._world = world
        self._late: set[asyncio.Future[HomeCtx]] = set()

    async def limit(self, home: HomeKey, limit: int | None) -> bool:
        return "no-disk-limit" not in self._world.bugs and await super().limit(home, limit)

    async def archive(self, home: HomeKey, ctx: HomeCtx, op_id: str, report: Report, fence: Fence) -> ArchiveReceipt:
        world = self._world
        if world.dice.random() < world.half_done:
            world.count("half done")
            place = ArchivePlace(home.workspace_id, op_id, archive_key_of(home.workspace_id, op_id))
            fence()
            world.archives.places.setdefault(place, StoredArchive({"half": b""}))
            raise Transient("the upload broke in the middle")
        return await super().archive(home, ctx, op_id, report, fence)

    async def restore(
        self,
        home: HomeKey,
        archive_key: str,
        incarnation: str,
        report: Report,
        fence: Fence,
        sha256: str | None = None,
    ) -> HomeCtx:
        world, process = self._world, PROCESS.get()

        def fence_and_then() -> None:
            fence()

        if home.workspace_id in self.volumes or world.dice.random() >= world.gap:
            return await super().restore(home, archive_key, incarnation, report, fence_and_then, sha256)
        # Frozen between the last fence check and the effect, which has been sent and cannot be cancelled.
        files: Files | None = self.archives.find(archive_key)
        fence()
        world.count("frozen before the effect")
        longest_s = world.dice.uniform(10, 60)
        process.freeze(longest_s)
        late = asyncio.ensure_future(self._restored_late(home, HomeCtx(incarnation, archive_key), files, longest_s))
        self._late.add(late)
        late.add_done_callback(self._over)
        return await asyncio.shield(late)

    def _over(self, late: asyncio.Future[HomeCtx]) -> None:
        self._late.discard(late)
        if not late.cancelled():
            late.exception()  # the caller may be gone

    async def _restored_late(self, home: HomeKey, ctx: HomeCtx, files: Files | None, longest_s: float) -> HomeCtx:
        await self._until_free_again(home.workspace_id, longest_s)
        if home.workspace_id in self.volumes or files is None:
            raise Conflict("another whole volume is there")
        self.volumes[home.workspace_id] = Volume(ctx, dict(files))
        self._world.check(home.workspace_id)
        return ctx

    async def _until_free_again(self, workspace_id: str, longest_s: float) -> None:
        """Wait until the next leader's volume has taken the place and the place is free again, at most this long."""
        clock, was_there = self._world.clock, False
        deadline = clock.monotonic() + longest_s
        while clock.monotonic() < deadline and (not was_there or workspace_id in self.volumes):
            was_there = was_there or workspace_id in self.volumes
            await asyncio.sleep(0.5)

    async def deprovision(self, home: HomeKey, ctx: HomeCtx, fence: Fence) -> None:
        world, volume = self._world, self.volumes.get(home.workspace_id)
        await super().deprovision(home, ctx, fence)
        if volume is not None:
            recorded = world.database.generations.get(home.workspace_id, {})
            kept = any(self.archives.find(one.receipt.archive_key) == volume.files for one in recorded.values())
            world.must(
                kept, f"8: the volume of {home.workspace_id} goes before its archive is committed and recorded"
            )
        world.check(home.workspace_id)

    async def purge(self, home: HomeKey, fence: Fence) -> None:
        await super().purge(home, fence)
        world, row = self._world, self._world.database.rows[home.workspace_id]
        over = row.op_started_at is not None and world.clock.now() - row.op_started_at >= world.retention
        world.must(
            row.operation is Operation.DELETING and over, f"{home.workspace_id} is purged before retention ends"
        )
        world.truth.pop(home.workspace_id, None)


class SimDatabase(MemoryDatabase):
    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world
        self._scheduled: set[tuple[str, DesiredState]] = set()

    async def commit(self, epoch: int, change: Change, now: datetime) -> Versioned | None:
        row = await super().commit(epoch, change, now)
        if row is not None:
            self._world.must(epoch == self.epoch, f"11: epoch {epoch} wrote while {self.epoch} leads")
        return row

    async def follow_schedules(self, epoch: int, now: datetime, limits: RunningLimits) -> Collection[str]:
        before, since = dict(self.rows), self._followed
        changed = await super().follow_schedules(epoch, now, limits)
        if "schedule-forgets" in self._world.bugs and since is not None:
            self._followed = since
        for id_ in changed:
            row, must = before[id_], self._world.must
            desired = self.rows[id_].desired_state
            self._world.count(f"scheduled {desired}")
            must(
                row.deleted_at is None and row.error_reason is None,
                f"a schedule changed {id_}, which is deleted or broken",
            )
            must(row.desired_state is not DesiredState.DELETED, f"a schedule keeps {id_} from being deleted")
            # A run is shorter than a day: each time of a schedule comes once, whoever leads then.
            must((id_, desired) not in self._scheduled, f"a schedule acts twice on {id_}")
            self._scheduled.add((id_, desired))
        return changed

    def must_lead(self, epoch: int) -> None:
        self._must_lead(epoch)

    async def put_to_archive(self, epoch: int, now: datetime, ttl: timedelta) -> Collection[str]:
        if "ttl-ignores-desired" not in self._world.bugs:
            return await super().put_to_archive(epoch, now, ttl)
        self._must_lead(epoch)
        rows = [
            row
            for row in self.rows.values()
            if row.phase is Phase.STANDBY and row.operation is Operation.NONE and now - row.phase_changed_at > ttl
        ]
        return self._set_desired_state(rows, DesiredState.ARCHIVED, "put_to_archive", now)

    def _must_lead(self, epoch: int) -> None:
        if "epoch-unchecked" not in self._world.bugs:
            super()._must_lead(epoch)

    def _set_desired_state(
        self, rows: Sequence[Workspace], desired: DesiredState, kind: str, now: datetime
    ) -> Collection[str]:
        wanted = DesiredState.RUNNING if desired is DesiredState.STANDBY else DesiredState.STANDBY
        for row in rows:
            self._world.must(row.desired_state is wanted, f"the TTL overrides what {row.id} was asked to be")
            if desired is DesiredState.STANDBY:
                self._world.put_to_sleep(row.id)
        return super()._set_desired_state(rows, desired, kind, now)

    def _write(self, workspace: Workspace) -> None:
        old, must = self.rows.get(workspace.id), self._world.must
        super()._write(workspace)
        must(
            workspace.phase is not Phase.ERROR or workspace.operation is Operation.NONE, "4: ERROR with an operation"
        )
        seems_lost = self._world.homes.hidden and workspace.error_reason is ErrorReason.DATA_LOST
        known_lost = old is not None and old.error_reason is workspace.error_reason
        must(
            workspace.error_reason not in _NEVER or seems_lost or known_lost,
            f"{workspace.id} ends in {workspace.error_reason}",
        )
        must(workspace.blocked is None or workspace.error_reason is None, f"{workspace.id} waits, and is in ERROR")
        if old is not None and old.operation is not workspace.operation:
            must(Operation.NONE in (old.operation, workspace.operation), "4: an operation is preempted")
            if old.operation is Operation.NONE:
                along = (workspace.operation, workspace.desired_state) in _ALLOWED
                must(along, f"5: {workspace.operation} off the edges")
            elif is_cancelled(old) and workspace.phase is not Phase.ERROR:
                must(old.home_ctx in (None, workspace.home_ctx), f"{workspace.id}: cancelling changed its volume")
            elif old.operation is Operation.ARCHIVING and workspace.error_reason is None:
                op_id = workspace.archive_op_id or ""
                must(workspace.archive_key == archive_key_of(workspace.id, op_id), "8: archived without its key")
        if old is not None and old.dev_image_next is not None and workspace.dev_image_next != old.dev_image_next:
            starts = workspace.operation is Operation.STARTING and old.operation is Operation.NONE
            taken = starts and workspace.dev_image == old.dev_image_next
            must(taken or workspace.dev_image_next is not None, f"{workspace.id} lost its image")
        if old is not None and old.operation is Operation.STARTING and workspace.phase is Phase.RUNNING:
            volume = self._world.homes.volumes.get(workspace.id)
            limited = volume is None or volume.limit == disk_limit(workspace)
            must(limited, f"disk: {workspace.id} runs without the size of its template")
        if old is not None and old.owner_user_id != workspace.owner_user_id:
            self._world.transferred(workspace)
        began = workspace.archive_key is not None and (old is None or old.archive_key is None)
        if workspace.copy_of is not None and began:
            self._world.copied(workspace)
        self._world.check(workspace.id)


def recovered(row: Workspace, now: datetime, desired: DesiredState) -> Workspace:
    """Return the row that the API writes when a user requests this state, including recovery."""
    accessed = now if desired is DesiredState.RUNNING else row.last_access_at
    return replace(
        row,
        desired_state=desired,
        last_access_at=accessed,
        error_reason=None,
        error_count=0 if row.operation is Operation.NONE else row.error_count,
        retry_at=None if row.operation is Operation.NONE else row.retry_at,
        updated_at=now,
    )


def works(instance: str) -> bool:
    """Return whether a program works in this instance from its start to its end."""
    return int(instance.removeprefix("i-")) % 2 == 0
