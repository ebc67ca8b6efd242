"""Observes all workspaces at once, cheaply, and finds those that need a worker.

One query for row versions, and one listing of instances and of volumes per backend, are compared with the previous ones.
Only differences are judged, by the same pure functions that a worker uses, and a worker is woken only if that judgement
would change something. The cost grows with the number of changes, not of workspaces. All backends are listed at once and
for a bounded time: what a backend that hangs runs is Unknown, and the workspaces of the others are judged meanwhile.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Final, TypeVar

import structlog

from codehub.control.breaker import OBSERVED_WITHIN_S
from codehub.control.guarded_backends import GuardedBackends
from codehub.control.loss_guard import LossGuard
from codehub.control.observe import Observer, volume_seen
from codehub.control.reconcile import OBSERVED_EVERY
from codehub.domain.errors import CodeHubError
from codehub.domain.model import ErrorReason, Operation, Phase, Workspace
from codehub.domain.observed import InstanceSeen, Observed, VolumeSeen, VolumeState
from codehub.domain.plan import Decision, Fail, Rest, decide, observe
from codehub.ports.clock import Clock
from codehub.ports.control_store import ControlStore, Versioned
from codehub.ports.homes import HomeStatus
from codehub.ports.instances import ABSENT, InstanceStatus

_log = structlog.get_logger()
T = TypeVar("T")

# Archives at rest are checked in turn, a few per resync: 10,000 within an hour at an interval of 15 s.
_ARCHIVES_AT_ONCE: Final = 50
# Archives that could not be checked while the store was down come first.
_UNKNOWN_AT_ONCE: Final = 500
# Yield to the event loop after judging this many rows.
_JUDGED_AT_ONCE: Final = 200


class Resync:
    def __init__(
        self, store: ControlStore, backends: GuardedBackends, observer: Observer, clock: Clock, losses: LossGuard
    ) -> None:
        self._losses = losses
        self._store = store
        self._backends = backends
        self._observer = observer
        self._clock = clock
        self._rows: dict[str, Versioned] = {}
        # By backend, then by workspace; None while the backend does not answer.
        self._instances: dict[str, Mapping[str, InstanceStatus] | None] = {}
        self._homes: dict[str, Mapping[str, HomeStatus] | None] = {}
        self._archived: deque[str] = deque()
        # Rows left by workers since the last resync. They are compared with the next listing itself, because a home that
        # came and went between two listings differs in neither.
        self._noted: set[str] = set()

    def __len__(self) -> int:
        return len(self._rows)

    def note(self, workspace_id: str, row: Versioned | None) -> None:
        """Record the row as a worker left it. None: it is gone, or its state is unknown."""
        if row is None:
            self._rows.pop(workspace_id, None)
        else:
            self._take(row)
            self._noted.add(workspace_id)

    def under_way(self) -> list[str]:
        """Workspaces with an unfinished operation, as of the last resync."""
        return [id_ for id_, row in self._rows.items() if row.workspace.operation is not Operation.NONE]

    def running(self) -> list[tuple[Workspace, str]]:
        """Running workspaces without an operation, with the identity of their instance in the last listing."""
        found = []
        for workspace_id, row in self._rows.items():
            workspace = row.workspace
            if workspace.phase is Phase.RUNNING and workspace.operation is Operation.NONE:
                status = (self._instances.get(workspace.instance_backend) or {}).get(workspace_id)
                if status is not None and status.running:
                    found.append((workspace, status.identity))
        return found

    async def observe(self, busy: Collection[str]) -> list[str]:
        """The keys that need a worker because of their row, instance or volume, without those that have one."""
        noted, self._noted = self._noted, set()
        try:
            return await self._compare(noted, busy)
        except BaseException:
            self._noted |= noted  # a failed listing compared nothing
            raise

    async def _compare(self, noted: set[str], busy: Collection[str]) -> list[str]:
        differing = await self._list_backends()
        versions = await self._store.versions()
        changed = [id_ for id_, version in versions.items() if self._version(id_) != version]
        for gone in self._rows.keys() - versions.keys():
            del self._rows[gone]
        if changed:
            # For many, reading all rows is cheaper than naming them.
            for row in await self._store.load(None if len(changed) > len(versions) // 2 else changed):
                self._take(row)
        self._losses.total = sum(1 for row in self._rows.values() if _keeps_something(row.workspace))
        self._losses.volumes &= self._rows.keys()
        self._losses.archives &= self._rows.keys()
        suspects = (differing | noted | set(changed) | self._not_known() | self._losses.volumes) & self._rows.keys()
        return await self._to_reconcile(suspects - set(busy))

    @property
    def alarm(self) -> str:
        """Why nothing is marked as lost, if implausibly many workspaces seem lost."""
        return self._losses.alarm

    def _not_known(self) -> set[str]:
        """Workspaces with unknown facts. They must be observed again, because no listing differs once they can be."""
        return {
            id_
            for id_, row in self._rows.items()
            if row.workspace.conditions.volume_ready.is_unknown or row.workspace.conditions.container_ready.is_unknown
        }

    def stale(self) -> list[str]:
        """Workspaces whose `observed_at` is due although nothing changed."""
        before = self._clock.now() - OBSERVED_EVERY
        rows = (row.workspace for row in self._rows.values())
        return [row.id for row in rows if row.observed_at is not None and row.observed_at < before]

    def note_observed(self, versions: Mapping[str, str]) -> None:
        """Record that only their `observed_at` was written."""
        now = self._clock.now()
        for workspace_id, version in versions.items():
            if (row := self._rows.get(workspace_id)) is not None:
                self._rows[workspace_id] = Versioned(replace(row.workspace, observed_at=now), version)

    def _take(self, row: Versioned) -> None:
        workspace = row.workspace
        if workspace.deleted_at is not None:
            self._rows.pop(workspace.id, None)
            return
        if workspace.id not in self._rows:
            self._archived.append(workspace.id)
        self._rows[workspace.id] = row

    def _version(self, workspace_id: str) -> str | None:
        row = self._rows.get(workspace_id)
        return None if row is None else row.version

    async def _list_backends(self) -> set[str]:
        """List all backends at once. Returns the ids whose entry changed."""
        backends, within_s = self._backends, OBSERVED_WITHIN_S
        async with asyncio.TaskGroup() as group:
            instances = {
                name: group.create_task(
                    _unless_down(backends.with_instances(name, lambda one: one.list_all(), within_s=within_s))
                )
                for name in backends.instances
            }
            homes = {
                name: group.create_task(
                    _unless_down(backends.with_homes(name, lambda one: one.list_all(), within_s=within_s))
                )
                for name in backends.homes
            }
        differing: set[str] = set()
        for name, listing in instances.items():
            differing |= self._differing(self._instances.get(name), listing.result(), "instance_backend", name)
            self._instances[name] = listing.result()
        for name, listed in homes.items():
            differing |= self._differing(self._homes.get(name), listed.result(), "storage_backend", name)
            self._homes[name] = listed.result()
        return differing

    def _differing(
        self, old: Mapping[str, T] | None, new: Mapping[str, T] | None, column: str, backend: str
    ) -> set[str]:
        if old is None or new is None:
            if old is new:
                return set()
            # The backend went down or came back: everything on it has to be judged again.
            return {id_ for id_, row in self._rows.items() if getattr(row.workspace, column) == backend}
        if old == new:
            return set()
        return {id_ for id_ in old.keys() | new.keys() if old.get(id_) != new.get(id_)}

    async def _to_reconcile(self, suspects: Iterable[str]) -> list[str]:
        """Workspaces that an observation would change, those with work to do first."""
        urgent: list[str] = []
        lost: list[str] = []
        other: list[str] = []
        now = self._clock.now()
        for number, workspace_id in enumerate(sorted(suspects)):
            if number % _JUDGED_AT_ONCE == _JUDGED_AT_ONCE - 1:
                await asyncio.sleep(0)
            row = self._rows.get(workspace_id)
            if row is None:
                continue
            workspace = row.workspace
            observed = observe(workspace, self._as_listed(workspace), now)
            decision = decide(observed, now, was=workspace.phase)
            if decision_is_loss(decision):
                lost.append(workspace_id)
                self._losses.volumes.add(workspace_id)
                continue
            self._losses.volumes.discard(workspace_id)
            if not isinstance(decision, Rest):
                urgent.append(workspace_id)
            elif observed != workspace or workspace.observed_at is None or workspace.operation is not Operation.NONE:
                other.append(workspace_id)
        # Count before workers run, because workers mark losses.
        return urgent + ([] if self._losses.alarm else lost) + other

    def _as_listed(self, workspace: Workspace) -> Observed:
        homes = self._homes.get(workspace.storage_backend)
        instances = self._instances.get(workspace.instance_backend)
        volume: VolumeSeen | None = None
        if homes is not None:
            status = homes.get(workspace.id)
            volume = VolumeSeen(VolumeState.ABSENT) if status is None else volume_seen(status)
        instance: InstanceSeen | None = None
        if instances is not None:
            instance = self._observer.instance_seen(workspace, instances.get(workspace.id, ABSENT))
        archive = workspace.conditions.archive_ready
        return self._observer.observed(workspace, volume, None if archive.is_unknown else archive.is_true, instance)

    async def changed_archives(self) -> list[str]:
        """Check a few archives in turn. Returns the ids whose result differs from the row."""
        deadline = self._clock.monotonic() + OBSERVED_WITHIN_S
        to_check = self._archives_to_check()
        there: dict[str, bool] = {}
        for batch in _batches(list(to_check), _ARCHIVES_AT_ONCE):
            found = await _unless_down(self._committed([to_check[id_] for id_ in batch]))
            if found is None:
                break
            there |= {id_: found[to_check[id_]] for id_ in batch}
            if self._clock.monotonic() >= deadline:
                break  # a slow store: the rest is checked by the next resync
        return self._judge_archives(there)

    def _archives_to_check(self) -> dict[str, str]:
        """Archive keys by workspace, those that nothing is known of first."""
        unknown = (id_ for id_, row in self._rows.items() if row.workspace.conditions.archive_ready.is_unknown)
        turn = [*islice(unknown, _UNKNOWN_AT_ONCE), *self._losses.archives]
        for _ in range(min(_ARCHIVES_AT_ONCE, len(self._archived))):
            workspace_id = self._archived.popleft()
            if workspace_id in self._rows:
                self._archived.append(workspace_id)
                workspace = self._rows[workspace_id].workspace
                if workspace.phase is Phase.ARCHIVED or workspace.error_reason is ErrorReason.DATA_LOST:
                    turn.append(workspace_id)
        keys = {id_: self._rows[id_].workspace.archive_key for id_ in turn if id_ in self._rows}
        return {id_: key for id_, key in keys.items() if key is not None}

    async def _committed(self, keys: Collection[str]) -> Mapping[str, bool]:
        return await self._backends.with_archives(lambda one: one.committed(keys), within_s=OBSERVED_WITHIN_S)

    def _judge_archives(self, there: Mapping[str, bool]) -> list[str]:
        rows = {id_: self._rows[id_].workspace for id_ in there if id_ in self._rows}
        for id_, workspace in rows.items():
            seems_lost = not there[id_] and workspace.phase is Phase.ARCHIVED
            (self._losses.archives.add if seems_lost else self._losses.archives.discard)(id_)
        if self._losses.alarm:
            rows = {id_: workspace for id_, workspace in rows.items() if id_ not in self._losses.archives}
        known = {id_: workspace.conditions.archive_ready for id_, workspace in rows.items()}
        return [id_ for id_, was in known.items() if was.is_unknown or there[id_] is not was.is_true]


def decision_is_loss(decision: Decision) -> bool:
    return isinstance(decision, Fail) and decision.reason is ErrorReason.DATA_LOST


def _keeps_something(workspace: Workspace) -> bool:
    kept = workspace.home_ctx is not None or workspace.archive_key is not None
    return kept and workspace.error_reason is not ErrorReason.DATA_LOST


async def _unless_down(listing: Awaitable[T]) -> T | None:
    try:
        return await listing
    except CodeHubError as error:
        _log.debug("a backend could not be listed", error=str(error))
        return None


def _batches(ids: Sequence[str], size: int) -> Iterator[Sequence[str]]:
    return (ids[first : first + size] for first in range(0, len(ids), size))
