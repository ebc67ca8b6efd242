"""What the coordinator reads and writes, always as the leader of one epoch.

Every writing method first verifies, in the same transaction, that the epoch still leads, and raises Deposed otherwise. A
workspace changes only through `commit`: it writes the new row, on condition that the values the decision was based on are
unchanged.
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
    """One line of the timeline shown to users."""

    kind: str
    message: str
    detail: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Versioned:
    """A workspace and its row version, which differs after every change."""

    workspace: Workspace
    version: str


@dataclass(frozen=True, slots=True)
class Change:
    """`before` → `after`, of the columns the controller owns.

    Applied on condition that operation, archive_op_id, archive_key, error_reason and deleted_at still equal those of
    `before`; an intent also depends on desired_state (INV-8).
    """

    before: Workspace
    after: Workspace
    is_intent: bool = False
    events: tuple[TimelineEvent, ...] = ()
    generation: ArchiveReceipt | None = None


class ControlStore(Protocol):
    async def versions(self) -> Mapping[str, str]:
        """Return id → version of every workspace that is not deleted, in one query."""
        ...

    async def load(self, ids: Collection[str] | None = None) -> Sequence[Versioned]:
        """Return these workspaces, including deleted ones; or all that are not deleted."""
        ...

    async def commit(self, epoch: int, change: Change, now: datetime) -> Versioned | None:
        """Return the resulting row, including columns of other writers. None if the condition did not hold."""
        ...

    async def note_progress(self, epoch: int, workspace: Workspace, progress: Progress) -> None:
        """Store the progress if the operation is still the same."""
        ...

    async def note_observed(self, epoch: int, ids: Collection[str], now: datetime) -> Mapping[str, str]:
        """Set only `observed_at`. Returns the new versions."""
        ...

    async def archive_digest(self, workspace_id: str, archive_key: str) -> str | None:
        """Return the SHA-256 recorded when this archive of the workspace was committed. None if there is no record."""
        ...

    async def restarts_since(self, workspace_id: str, since: datetime) -> int:
        """Return the number of `restarting` events in the timeline since then."""
        ...

    async def note_components(self, epoch: int, components: Mapping[str, Mapping[str, object]]) -> None: ...


class StoreRegistry(Protocol):
    """The stores in which this installation keeps its data."""

    async def store_records(self) -> Mapping[str, StoreRecord]:
        """By kind: "homes", "archives"."""
        ...

    async def record_store(self, epoch: int, kind: str, record: StoreRecord) -> None: ...

    async def store_evidence(self, kind: str, most: int) -> Sequence[Workspace]:
        """Return some workspaces that refer to data in that store and are not known to have lost it."""
        ...

    async def note_refusal(self, node_id: str, why: str) -> None:
        """Record why this coordinator refuses to lead. An empty text: it no longer does.

        The only write without a term, because it concerns nothing but the coordinator itself.
        """
        ...


class TtlStore(Protocol):
    async def coverage(self) -> ActivityCoverage: ...

    async def record_coverage(self, epoch: int, coverage: ActivityCoverage) -> None: ...

    async def note_access(self, epoch: int, times: Mapping[str, datetime]) -> None:
        """Move `last_access_at` forward, never back."""
        ...

    async def note_busy(self, epoch: int, found: Mapping[str, Busy | None]) -> None:
        """Store what keeps each workspace awake; busy counts as an access at that time. None: nothing does."""
        ...

    async def idle(self, now: datetime, ttl: timedelta, gaps: Sequence[Span]) -> Sequence[Workspace]:
        """Return the workspaces that `put_to_sleep` would change now."""
        ...

    async def put_to_sleep(
        self, epoch: int, now: datetime, ttl: timedelta, gaps: Sequence[Span], unasked: Collection[str] = ()
    ) -> Collection[str]:
        """Set desired STANDBY for all that `domain.ttl.is_to_sleep`, in one transaction. Returns their ids.

        Except for `unasked`, where nobody knows whether a program works.
        """
        ...

    async def put_to_archive(self, epoch: int, now: datetime, ttl: timedelta) -> Collection[str]:
        """Set desired ARCHIVED for all that `domain.ttl.is_to_archive`, in one transaction. Returns their ids."""
        ...


class ScheduleStore(Protocol):
    async def follow_schedules(self, epoch: int, now: datetime, limits: RunningLimits) -> Collection[str]:
        """Apply what `domain.follow_schedule` requests since the last call, in one transaction that also stores the time.

        Returns the ids of changed workspaces. A workspace that would exceed the limits is not started; its timeline says
        so.
        """
        ...


class DiskStore(Protocol):
    async def to_measure(
        self, now: datetime, every: timedelta, most: int, *, without: Collection[str] = ()
    ) -> Sequence[Workspace]:
        """Some that `domain.disk.is_to_measure`, those first that were not measured for the longest time."""
        ...

    async def note_disk(self, epoch: int, workspace: Workspace, used: int | None, now: datetime) -> None:
        """How large this home is, while it is still the same incarnation. None: unknown."""
        ...


class GcStore(Protocol):
    async def begin_purges(self, epoch: int, now: datetime, retention: timedelta) -> Collection[str]:
        """Commit `purged_at` of all workspaces whose retention is over, under their rows' locks. Returns their ids."""
        ...

    async def claims(self, ids: Collection[str], keep: int) -> Mapping[str, Claim]:
        """Return what these workspaces' rows say about archives, with their `keep` newest generations.

        Absent: there is no row.
        """
        ...

    async def note_orphans(self, epoch: int, places: Collection[ArchivePlace], now: datetime) -> None:
        """Store the current orphans: add new ones, keep known ones, and drop those that are no longer orphans."""
        ...

    async def orphans(self) -> Sequence[tuple[ArchivePlace, datetime]]:
        """Return every recorded orphan and when it was first seen."""
        ...

    async def forget_archive(self, epoch: int, place: ArchivePlace) -> None:
        """Delete the records of a removed archive: its generation and its orphan entry."""
        ...
