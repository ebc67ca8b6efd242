"""What the coordinator reads and writes, always as the leader of one epoch.

Every writing method first makes sure that the epoch still leads, in the same transaction, and raises Deposed when it does
not. `commit` is the one way a workspace changes: the row as it is to be, on condition that nobody moved what it was
decided from.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Protocol

from codehub.domain.gc import Claim
from codehub.domain.limits import RunningLimits
from codehub.domain.model import Busy, Progress, Workspace
from codehub.domain.stores import StoreRecord
from codehub.domain.ttl import ActivityCoverage, Span
from codehub.ports.archives import ArchivePlace
from codehub.ports.homes import ArchiveReceipt


@dataclass(frozen=True, slots=True)
class TimelineEvent:
    """One line of the timeline a person reads."""

    kind: str
    message: str
    detail: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Versioned:
    """A workspace and its row's version, which differs after every change by anybody."""

    workspace: Workspace
    version: str


@dataclass(frozen=True, slots=True)
class Change:
    """`before` → `after`, of the columns the controller owns.

    On condition that operation, archive_op_id, archive_key, error_reason and deleted_at are still those of `before`; an
    intent also depends on desired_state (INV-8).
    """

    before: Workspace
    after: Workspace
    is_intent: bool = False
    events: tuple[TimelineEvent, ...] = ()
    generation: ArchiveReceipt | None = None


class ControlStore(Protocol):
    async def versions(self) -> Mapping[str, str]:
        """Id → version of every workspace that is not deleted, in one query."""
        ...

    async def load(self, ids: Collection[str] | None = None) -> Sequence[Versioned]:
        """These, deleted ones too; or all that are not deleted."""
        ...

    async def commit(self, epoch: int, change: Change, now: datetime) -> Versioned | None:
        """The row as it is afterwards, others' columns included; None when the condition did not hold."""
        ...

    async def note_progress(self, epoch: int, workspace: Workspace, progress: Progress) -> None:
        """While its operation is still the same one."""
        ...

    async def note_observed(self, epoch: int, ids: Collection[str], now: datetime) -> Mapping[str, str]:
        """Set `observed_at` alone; the new versions."""
        ...

    async def restarts_since(self, workspace_id: str, since: datetime) -> int:
        """How many `restarting` events its timeline has since then."""
        ...

    async def note_components(self, epoch: int, components: Mapping[str, Mapping[str, object]]) -> None: ...


class StoreRegistry(Protocol):
    """Which stores this installation keeps its data in."""

    async def store_records(self) -> Mapping[str, StoreRecord]:
        """By kind: "homes", "archives"."""
        ...

    async def record_store(self, epoch: int, kind: str, record: StoreRecord) -> None: ...

    async def store_evidence(self, kind: str, most: int) -> Sequence[Workspace]:
        """Some workspaces that say that something of theirs is in that store, and are not known to have lost it."""
        ...


class TtlStore(Protocol):
    async def coverage(self) -> ActivityCoverage: ...

    async def record_coverage(self, epoch: int, coverage: ActivityCoverage) -> None: ...

    async def note_access(self, epoch: int, times: Mapping[str, datetime]) -> None:
        """Move `last_access_at` forward, never back."""
        ...

    async def note_busy(self, epoch: int, found: Mapping[str, Busy | None]) -> None:
        """What keeps each of these awake; busy counts as an access at that time. None: nothing does."""
        ...

    async def idle(self, now: datetime, ttl: timedelta, gaps: Sequence[Span]) -> Sequence[Workspace]:
        """Those that `put_to_sleep` would take now."""
        ...

    async def put_to_sleep(self, epoch: int, now: datetime, ttl: timedelta, gaps: Sequence[Span]) -> Collection[str]:
        """desired STANDBY for all that `domain.ttl.is_to_sleep`, in one transaction; their ids."""
        ...

    async def put_to_archive(self, epoch: int, now: datetime, ttl: timedelta) -> Collection[str]:
        """desired ARCHIVED for all that `domain.ttl.is_to_archive`, in one transaction; their ids."""
        ...


class ScheduleStore(Protocol):
    async def follow_schedules(self, epoch: int, now: datetime, limits: RunningLimits) -> Collection[str]:
        """What `domain.follow_schedule` asks for since the last call, and the time of this one, in one transaction; the
        ids of those that changed. One that would exceed the limits is not started, and its timeline says so."""
        ...


class DiskStore(Protocol):
    async def to_measure(self, now: datetime, every: timedelta, most: int) -> Sequence[Workspace]:
        """Some that `domain.disk.is_to_measure`, those first that were not measured for the longest time."""
        ...

    async def note_disk(self, epoch: int, workspace: Workspace, used: int | None, now: datetime) -> None:
        """How large this home is, while it is still the same incarnation. None: unknown."""
        ...


class GcStore(Protocol):
    async def begin_purges(self, epoch: int, now: datetime, retention: timedelta) -> Collection[str]:
        """Commit `purged_at` of all that were deleted longer ago, under their rows' locks; their ids."""
        ...

    async def claims(self, ids: Collection[str], keep: int) -> Mapping[str, Claim]:
        """What these workspaces say about archives, with their `keep` newest generations. Absent: there is no row."""
        ...

    async def note_orphans(self, epoch: int, places: Collection[ArchivePlace], now: datetime) -> None:
        """Exactly these are orphans now: first seen now, or still; what is no orphan any more is forgotten."""
        ...

    async def orphans(self) -> Sequence[tuple[ArchivePlace, datetime]]:
        """Every noted orphan and when it was first seen."""
        ...

    async def forget_archive(self, epoch: int, place: ArchivePlace) -> None:
        """It is gone: no generation and no orphan any more."""
        ...
