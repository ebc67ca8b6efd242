"""The coordinator's tables in memory: rows, versions, epoch, timeline, orphans. Passes the suite of PostgreSQL's stores.

Every method is one atomic step, like a transaction. `notices` receives what the triggers would notify.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from codehub.domain.disk import is_to_measure
from codehub.domain.errors import BackendDown, Deposed, LimitExceeded
from codehub.domain.follow_schedule import scheduled_state
from codehub.domain.gc import Claim
from codehub.domain.limits import RunningLimits, check_running_limits
from codehub.domain.model import Busy, DesiredState, ErrorReason, Operation, Phase, Progress, Workspace
from codehub.domain.stores import StoreRecord
from codehub.domain.ttl import ActivityCoverage, Span, is_to_archive, is_to_sleep
from codehub.ports.archives import ArchivePlace
from codehub.ports.control_store import Change, TimelineEvent, Versioned
from codehub.ports.homes import ArchiveReceipt
from codehub.ports.notifications import Notice, NoticeKind


@dataclass(frozen=True, slots=True)
class Generation:
    receipt: ArchiveReceipt
    committed_at: datetime


class MemoryDatabase:
    def __init__(self) -> None:
        self.epoch = 0
        self.rows: dict[str, Workspace] = {}
        self.events: dict[str, list[tuple[datetime, TimelineEvent]]] = {}
        self.generations: dict[str, dict[str, Generation]] = {}
        self.components: Mapping[str, Mapping[str, object]] = {}
        self.refusals: dict[str, str] = {}
        self.stores: dict[str, StoreRecord] = {}
        self._versions: dict[str, str] = {}
        self._version = 0
        self._coverage = ActivityCoverage()
        self._orphans: dict[str, tuple[ArchivePlace, datetime]] = {}
        self.zones: dict[str, str] = {}  # of owners
        self._followed: datetime | None = None
        self._listeners: list[asyncio.Queue[Notice | None]] = []

    # The API's writes.

    def put(self, workspace: Workspace) -> None:
        """Insert or change a row from outside the coordinator, with the triggers' notifications."""
        old = self.rows.get(workspace.id)
        self._write(workspace)
        if (
            old is None
            or old.desired_state is not workspace.desired_state
            or (old.error_reason is not None and workspace.error_reason is None)
            or (old.dev_image_next is None and workspace.dev_image_next is not None)
            or (old.deleted_at is not None and workspace.deleted_at is None)
        ):
            self._notify(NoticeKind.WAKE, workspace)

    def cut_listeners(self) -> None:
        for queue in self._listeners:
            queue.put_nowait(None)

    async def listen(self) -> AsyncIterator[Notice | None]:
        queue: asyncio.Queue[Notice | None] = asyncio.Queue()
        self._listeners.append(queue)
        try:
            yield None
            while (notice := await queue.get()) is not None:
                yield notice
            raise BackendDown("the listening connection broke")
        finally:
            self._listeners.remove(queue)

    # ControlStore.

    async def versions(self) -> Mapping[str, str]:
        return {id_: self._versions[id_] for id_, row in self.rows.items() if row.deleted_at is None}

    async def load(self, ids: Collection[str] | None = None) -> Sequence[Versioned]:
        if ids is None:
            found = [row for row in self.rows.values() if row.deleted_at is None]
        else:
            found = [self.rows[id_] for id_ in ids if id_ in self.rows]
        return [Versioned(row, self._versions[row.id]) for row in sorted(found, key=lambda row: row.id)]

    async def commit(self, epoch: int, change: Change, now: datetime) -> Versioned | None:
        self._must_lead(epoch)
        before, after = change.before, change.after
        row = self.rows.get(before.id)
        if row is None or (
            row.operation is not before.operation
            or row.archive_op_id != before.archive_op_id
            or row.archive_key != before.archive_key
            or row.error_reason is not before.error_reason
            or row.deleted_at != before.deleted_at
            or (change.is_intent and row.desired_state is not before.desired_state)
        ):
            return None
        if change.is_intent and after.operation is Operation.STARTING and row.template_next is not None:
            taken = row.template_next
            row = replace(row, template=taken, template_next=None, image_ref=taken.image_ref)
        if change.is_intent and after.operation is Operation.STARTING and row.dev_image_next is not None:
            row = replace(row, dev_image=row.dev_image_next, dev_image_next=None, dev_image_auto=False)
        written = replace(
            row,
            conditions=after.conditions,
            observed_at=after.observed_at,
            phase=after.phase,
            phase_changed_at=after.phase_changed_at,
            operation=after.operation,
            op_started_at=after.op_started_at,
            progress=after.progress,
            archive_op_id=after.archive_op_id,
            archive_key=after.archive_key,
            home_ctx=after.home_ctx,
            error_reason=after.error_reason,
            error_message=after.error_message,
            blocked=after.blocked,
            error_count=after.error_count,
            retry_at=after.retry_at,
            deleted_at=after.deleted_at,
            updated_at=now,
        )
        self._write(written)
        if change.generation is not None:
            kept = self.generations.setdefault(row.id, {})
            kept.setdefault(change.generation.op_id, Generation(change.generation, now))
        self.events.setdefault(row.id, []).extend((now, event) for event in change.events)
        return Versioned(written, self._versions[row.id])

    async def note_progress(self, epoch: int, workspace: Workspace, progress: Progress) -> None:
        self._must_lead(epoch)
        row = self.rows.get(workspace.id)
        if row is not None and row.operation is workspace.operation and row.op_started_at == workspace.op_started_at:
            self._write(replace(row, progress=progress, blocked=None))

    async def note_observed(self, epoch: int, ids: Collection[str], now: datetime) -> Mapping[str, str]:
        self._must_lead(epoch)
        live = [id_ for id_ in ids if id_ in self.rows and self.rows[id_].deleted_at is None]
        for id_ in live:
            self._write(replace(self.rows[id_], observed_at=now))
        return {id_: self._versions[id_] for id_ in live}

    async def archive_digest(self, workspace_id: str, archive_key: str) -> str | None:
        made = (one.receipt for one in self.generations.get(workspace_id, {}).values())
        return next((receipt.sha256 for receipt in made if receipt.archive_key == archive_key), None)

    async def restarts_since(self, workspace_id: str, since: datetime) -> int:
        events = self.events.get(workspace_id, [])
        return sum(1 for at, event in events if event.kind == "restarting" and at >= since)

    async def store_records(self) -> Mapping[str, StoreRecord]:
        return dict(self.stores)

    async def record_store(self, epoch: int, kind: str, record: StoreRecord) -> None:
        self._must_lead(epoch)
        self.stores[kind] = record

    async def note_refusal(self, node_id: str, why: str) -> None:
        if why:
            self.refusals[node_id] = why
        else:
            self.refusals.pop(node_id, None)

    async def store_evidence(self, kind: str, most: int) -> Sequence[Workspace]:
        rows = [
            row
            for row in self.rows.values()
            if row.deleted_at is None
            and row.error_reason is not ErrorReason.DATA_LOST
            and (row.archive_key if kind == "archives" else row.home_ctx) is not None
        ]
        return sorted(rows, key=lambda row: row.id, reverse=True)[:most]

    async def note_components(self, epoch: int, components: Mapping[str, Mapping[str, object]]) -> None:
        if epoch == self.epoch:
            self.components = components

    # TtlStore.

    async def coverage(self) -> ActivityCoverage:
        return self._coverage

    async def record_coverage(self, epoch: int, coverage: ActivityCoverage) -> None:
        self._must_lead(epoch)
        self._coverage = coverage

    async def note_access(self, epoch: int, times: Mapping[str, datetime]) -> None:
        self._must_lead(epoch)
        for id_, at in times.items():
            row = self.rows.get(id_)
            if row is not None and (row.last_access_at is None or row.last_access_at < at):
                self._write(replace(row, last_access_at=at))

    async def note_busy(self, epoch: int, found: Mapping[str, Busy | None]) -> None:
        self._must_lead(epoch)
        for id_, busy in found.items():
            row = self.rows.get(id_)
            if row is not None and row.busy != busy:
                accessed = [at for at in (row.last_access_at, busy.at if busy else None) if at is not None]
                self._write(replace(row, busy=busy, last_access_at=max(accessed, default=None)))

    async def idle(self, now: datetime, ttl: timedelta, gaps: Sequence[Span]) -> Sequence[Workspace]:
        return [row for row in self.rows.values() if is_to_sleep(row, now, ttl, gaps)]

    async def put_to_sleep(
        self, epoch: int, now: datetime, ttl: timedelta, gaps: Sequence[Span], unasked: Collection[str] = ()
    ) -> Collection[str]:
        self._must_lead(epoch)
        rows = [row for row in self.rows.values() if is_to_sleep(row, now, ttl, gaps) and row.id not in unasked]
        return self._set_desired_state(rows, DesiredState.STANDBY, "put_to_sleep", now)

    async def put_to_archive(self, epoch: int, now: datetime, ttl: timedelta) -> Collection[str]:
        self._must_lead(epoch)
        rows = [row for row in self.rows.values() if is_to_archive(row, now, ttl)]
        return self._set_desired_state(rows, DesiredState.ARCHIVED, "put_to_archive", now)

    # ScheduleStore.

    async def follow_schedules(self, epoch: int, now: datetime, limits: RunningLimits) -> Collection[str]:
        self._must_lead(epoch)
        since, self._followed = self._followed, now
        changed = []
        for row in sorted(self.rows.values(), key=lambda row: row.id):
            desired = scheduled_state(row, self.zones.get(row.owner_user_id, ""), since, now)
            if desired is None or (desired is DesiredState.RUNNING and not self._has_slot(row, limits)):
                continue
            accessed = now if desired is DesiredState.RUNNING else row.last_access_at
            self.put(replace(row, desired_state=desired, last_access_at=accessed, updated_at=now))
            self.events.setdefault(row.id, []).append((now, TimelineEvent("schedule", desired.value)))
            changed.append(row.id)
        return changed

    def _has_slot(self, row: Workspace, limits: RunningLimits) -> bool:
        others = [
            each
            for each in self.rows.values()
            if each.id != row.id
            and each.desired_state is DesiredState.RUNNING
            and each.phase is not Phase.ERROR
            and each.deleted_at is None
        ]
        mine = sum(1 for each in others if each.owner_user_id == row.owner_user_id)
        try:
            check_running_limits(limits, others_of_user=mine, others_in_all=len(others))
        except LimitExceeded:
            self.events.setdefault(row.id, []).append(
                (self._followed or row.updated_at, TimelineEvent("schedule", ""))
            )
            return False
        return True

    # DiskStore.

    async def to_measure(
        self, now: datetime, every: timedelta, most: int, *, without: Collection[str] = ()
    ) -> Sequence[Workspace]:
        due = [row for row in self.rows.values() if row.id not in without and is_to_measure(row, now, every)]
        never = datetime.min.replace(tzinfo=UTC)
        return sorted(due, key=lambda row: (row.disk_checked_at or never, row.id))[:most]

    async def note_disk(self, epoch: int, workspace: Workspace, used: int | None, now: datetime) -> None:
        self._must_lead(epoch)
        row, measured = self.rows.get(workspace.id), workspace.home_ctx
        if row is None or row.home_ctx is None or measured is None:
            return
        if row.home_ctx.incarnation == measured.incarnation:
            self._write(replace(row, disk_bytes=used, disk_checked_at=now))

    # GcStore.

    async def begin_purges(self, epoch: int, now: datetime, retention: timedelta) -> Collection[str]:
        self._must_lead(epoch)
        found = [
            row
            for row in self.rows.values()
            if row.deleted_at is not None and row.purged_at is None and now - row.deleted_at >= retention
        ]
        for row in found:
            self._write(replace(row, purged_at=now))
        return [row.id for row in found]

    async def claims(self, ids: Collection[str], keep: int) -> Mapping[str, Claim]:
        return {id_: self._claim(self.rows[id_], keep) for id_ in ids if id_ in self.rows}

    async def note_orphans(self, epoch: int, places: Collection[ArchivePlace], now: datetime) -> None:
        self._must_lead(epoch)
        old = self._orphans
        self._orphans = {place.archive_key: old.get(place.archive_key, (place, now)) for place in places}

    async def orphans(self) -> Sequence[tuple[ArchivePlace, datetime]]:
        return [self._orphans[key] for key in sorted(self._orphans)]

    async def forget_archive(self, epoch: int, place: ArchivePlace) -> None:
        self._must_lead(epoch)
        self._orphans.pop(place.archive_key, None)
        for generations in self.generations.values():
            for op_id in [id_ for id_, one in generations.items() if one.receipt.archive_key == place.archive_key]:
                del generations[op_id]

    def _must_lead(self, epoch: int) -> None:
        if epoch != self.epoch:
            raise Deposed(f"epoch {epoch} is over: the database is at {self.epoch}")

    def _set_desired_state(
        self, rows: Sequence[Workspace], desired: DesiredState, kind: str, now: datetime
    ) -> Collection[str]:
        for row in rows:
            self.put(replace(row, desired_state=desired, updated_at=now, busy=None))
            self.events.setdefault(row.id, []).append((now, TimelineEvent(kind, kind)))
        return [row.id for row in rows]

    def _claim(self, row: Workspace, keep: int) -> Claim:
        made = sorted(self.generations.get(row.id, {}).items(), key=lambda one: (one[1].committed_at, one[0]))
        return Claim(
            workspace_id=row.id,
            phase=Phase.DELETED if row.deleted_at is not None else row.phase,
            archive_key=row.archive_key,
            archive_op_id=row.archive_op_id,
            kept=frozenset(op_id for op_id, _ in made[-keep:]),
            error_recorded=row.error_reason is not None,
            home_is_seen=row.conditions.volume_ready.is_true or row.conditions.archive_ready.is_true,
            purged_at=row.purged_at,
            used_by_others=self._used_by_others(row.id, keep),
            copying=frozenset(
                copy.archive_op_id
                for copy in self.rows.values()
                if copy.copy_of == row.id
                and copy.operation is Operation.DUPLICATING
                and copy.archive_op_id is not None
            ),
        )

    def _used_by_others(self, workspace_id: str, keep: int) -> frozenset[str]:
        found: set[str] = set()
        for other in self.rows.values():
            if other.id == workspace_id or other.purged_at is not None:
                continue
            made = sorted(self.generations.get(other.id, {}).items(), key=lambda one: (one[1].committed_at, one[0]))
            keys = [other.archive_key or "", *(one.receipt.archive_key for _, one in made[-keep:])]
            found |= {key for key in keys if key.startswith(f"{workspace_id}/")}
        return frozenset(found)

    def _write(self, workspace: Workspace) -> None:
        old = self.rows.get(workspace.id)
        self.rows[workspace.id] = workspace
        self._version += 1
        self._versions[workspace.id] = str(self._version)
        if self._listeners:
            self._notify(NoticeKind.SHOWN, workspace)
            if workspace.deleted_at is not None and (old is None or old.deleted_at is None):
                self._notify(NoticeKind.DELETED, workspace)

    def _notify(self, kind: NoticeKind, workspace: Workspace) -> None:
        for queue in self._listeners:
            queue.put_nowait(Notice(kind, workspace.id, workspace.owner_user_id))
