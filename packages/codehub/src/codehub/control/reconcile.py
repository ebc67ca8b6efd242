"""Reconciles one workspace: observe → decide → commit the intent → act → observe → commit the outcome, until it converges.

A request carries only a key; everything else is read again. An interruption (a crash, a lost term, a lost race for the
row) costs nothing but another observation.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TypeAlias

import structlog

from codehub.control import timeline
from codehub.control.act import Actor, Task
from codehub.control.cancellation import CancellationWatch, OperationCancelled
from codehub.control.deps import ControllerSettings
from codehub.control.loss_guard import LossGuard
from codehub.control.metrics import Metrics
from codehub.control.observe import Observer
from codehub.control.progress_deadline import ProgressDeadline, ProgressDeadlineExceeded
from codehub.control.report import ProgressReport
from codehub.control.transfer_turns import Direction, NotYourTurn, TransferTurns
from codehub.domain.errors import BackendDown, CodeHubError, Deposed
from codehub.domain.model import ErrorReason, Operation, Workspace
from codehub.domain.plan import Begin, Cancel, CarryOn, Complete, Fail, Heal, Rest, Wait, decide, observe
from codehub.domain.progress import (
    RESTARTS_ALLOWED,
    RESTARTS_WINDOW,
    Failure,
    begin,
    block,
    cancel,
    complete,
    fail,
    failure_of,
    heal,
    to_error,
)
from codehub.ports.clock import Clock
from codehub.ports.control_store import Change, ControlStore, TimelineEvent, Versioned
from codehub.ports.homes import ARCHIVES_AT_ONCE, RESTORES_AT_ONCE, ArchiveReceipt
from codehub.ports.leadership import Lease

_log = structlog.get_logger()

# `observed_at` alone is written this often (docs/control-plane.md).
OBSERVED_EVERY = timedelta(minutes=5)
# The breaker retries a backend that is down, not each workspace.
_BACKEND_DOWN_S = 5.0
# A transfer that waits for its turn is woken. This is only for the case that the wake-up is lost.
_TURN_S = 30.0
# More steps than any path has. A workspace that exceeds it is reconciled later instead of in a tight loop.
_MOST_STEPS = 16


@dataclass(frozen=True, slots=True)
class AtRest:
    """Nothing to do until something changes."""


@dataclass(frozen=True, slots=True)
class Again:
    """Reconcile again after a delay."""

    after_s: float


Result: TypeAlias = AtRest | Again


class _RowMoved(Exception):
    """The row changed since the decision; the next observation decides again."""


class Reconciler:
    def __init__(
        self,
        store: ControlStore,
        observer: Observer,
        actor: Actor,
        lease: Lease,
        clock: Clock,
        settings: ControllerSettings,
        metrics: Metrics,
        new_id: Callable[[], str],
        random: Callable[[], float],
        losses: LossGuard,
    ) -> None:
        self._losses = losses
        self._store = store
        self._observer = observer
        self._actor = actor
        self._lease = lease
        self._clock = clock
        self._settings = settings
        self._metrics = metrics
        self._new_id = new_id
        self._random = random
        self.cancellation = CancellationWatch(store)
        self._deadline: dict[str, tuple[tuple[object, ...], ProgressDeadline]] = {}
        # Consecutive attempts that met a backend that does not answer.
        self._down: dict[str, int] = {}
        self.on_turn: Callable[[str], None] = lambda workspace_id: None
        # Running transfers leave most workers to other work.
        most = max(1, settings.max_parallel // 4)
        self._turns = {
            Direction.ARCHIVE: TransferTurns(min(ARCHIVES_AT_ONCE, most), lambda key: self.on_turn(key)),
            Direction.RESTORE: TransferTurns(min(RESTORES_AT_ONCE, most), lambda key: self.on_turn(key)),
        }

    async def reconcile(self, workspace_id: str) -> tuple[Result, Versioned | None]:
        """What to do next with this key, and the row after this run."""
        try:
            return await self._reconcile(workspace_id)
        finally:
            for turns in self._turns.values():
                turns.settle(workspace_id)

    async def _reconcile(self, workspace_id: str) -> tuple[Result, Versioned | None]:
        found = await self._store.load([workspace_id])
        if not found or found[0].workspace.deleted_at is not None:
            self._deadline.pop(workspace_id, None)
            return AtRest(), None
        if found[0].workspace.of_newer_version:
            _log.warning("left to a newer version", workspace_id=workspace_id)
            return AtRest(), found[0]
        try:
            return await self._steps(found[0])
        except _RowMoved:
            return Again(0.0), None

    async def _steps(self, row: Versioned) -> tuple[Result, Versioned | None]:
        acted = False
        for _ in range(_MOST_STEPS):
            before = row.workspace
            seen = await self._observer.observe(before)
            now = self._clock.now()  # observing takes long while a backend hangs
            observed = observe(before, seen, now)
            match decide(observed, now, was=before.phase):
                case Rest():
                    row = await self._keep(row, observed)
                    under_way = observed.operation is not Operation.NONE
                    return (Again(_BACKEND_DOWN_S) if under_way else AtRest()), row
                case Wait(until):
                    row = await self._keep(row, observed)
                    return Again(max(0.0, (until - now).total_seconds())), row
                case Fail(ErrorReason.DATA_LOST, message) if self._seems_lost_with_many(before.id):
                    return Again(_BACKEND_DOWN_S), row
                case Heal():
                    row = await self._commit(before, heal(observed), timeline.found_again())
                case Fail(reason, message):
                    after = to_error(observed, reason, observed.error_count + 1, now, message)
                    row = await self._commit(before, after, timeline.error(reason, message, before.operation))
                    self._ended(before, reason.value)
                case Complete(operation):
                    row = await self._commit(before, complete(observed, now), timeline.done(operation))
                    self._ended(before, "done")
                    acted = False
                    await self._cleanup_staging(row.workspace, operation)
                case Cancel(operation):
                    row = await self._commit(before, cancel(observed, now), timeline.cancelled(operation))
                    self._ended(before, "cancelled")
                    acted = False
                    await self._cleanup_staging(row.workspace, operation)
                case Begin(operation, again):
                    if again and await self._restarts_too_often(observed):
                        message = f"restarted more than {RESTARTS_ALLOWED} times in {RESTARTS_WINDOW}"
                        after = to_error(observed, ErrorReason.RETRY_EXCEEDED, observed.error_count, now, message)
                        row = await self._commit(before, after, timeline.error(ErrorReason.RETRY_EXCEEDED, message))
                        continue
                    after = begin(observed, operation, self._new_id(), now)
                    event = timeline.begun(after, again=again)
                    row = await self._commit(before, after, event, is_intent=True)
                    row, pause = await self._attempt(row)
                    acted = True
                    if pause is not None:
                        return pause, row
                case CarryOn():
                    row = await self._keep(row, observed)
                    if acted:
                        # The action reported success but the world does not show it (INV-1): observe again soon.
                        return Again(self._settings.active_interval_s), row
                    row, pause = await self._attempt(row)
                    acted = True
                    if pause is not None:
                        return pause, row
        return Again(self._settings.active_interval_s), row

    async def _attempt(self, row: Versioned) -> tuple[Versioned, Result | None]:
        """Act once. Returns None if the result should be observed, else when to retry."""
        workspace = row.workspace
        deadline = self._deadline_of(workspace)
        if deadline.left_s <= 0:
            return await self._failed(row, failure_of(_deadline_exceeded(self._settings))), None
        report = ProgressReport(self._store, self._lease.epoch, workspace, deadline)
        current = _Current(row)

        async def record(receipt: ArchiveReceipt, is_current: bool) -> None:
            before = current.row.workspace
            after = replace(before, blocked=None)
            after = replace(after, archive_key=receipt.archive_key) if is_current else after
            current.row = await self._commit(before, after, timeline.archived(receipt), generation=receipt)

        def turn(direction: Direction) -> AbstractContextManager[None]:
            return self._turns[direction].turn(workspace.id, workspace.owner_user_id)

        task = Task(workspace, self._lease.fence, report.take, record, turn, self._retention_is_over(workspace))
        try:
            async with report.writing():
                ctx = await self.cancellation.run(workspace, deadline.run(self._actor.act(task)))
        except OperationCancelled:
            raise _RowMoved from None
        except NotYourTurn:
            deadline.renew()
            return current.row, Again(_TURN_S)
        except BackendDown as error:
            deadline.renew()  # the progress clock stops while the backend does not answer
            return await self._wait_for_backend(current.row, error), Again(_BACKEND_DOWN_S)
        except Deposed:
            raise
        except CodeHubError as error:
            return await self._failed(current.row, failure_of(error)), None
        except (_RowMoved, AssertionError):
            raise
        except Exception as error:  # noqa: BLE001 - a bug in a backend fails this workspace's attempt, nothing else
            _log.exception("an action failed unexpectedly", workspace_id=workspace.id)
            return await self._failed(current.row, _unforeseen(error)), None
        self._down.pop(workspace.id, None)
        made = replace(current.row.workspace, home_ctx=ctx) if ctx is not None else current.row.workspace
        return Versioned(made, current.row.version), None

    async def _wait_for_backend(self, row: Versioned, error: BackendDown) -> Versioned:
        """Does not count as an attempt. Reported once it lasted for as many tries as an operation has."""
        before = row.workspace
        count = self._down.get(before.id, 0) + 1
        self._down[before.id] = count
        _log.info("waits for its backend", workspace_id=before.id, error=str(error))
        if count < self._settings.max_retry or before.blocked is not None:
            return row
        after = block(before, ErrorReason.UNREACHABLE, str(error), self._clock.now())
        assert after.blocked is not None
        return await self._commit(before, after, timeline.blocked(after.blocked))

    async def _failed(self, row: Versioned, failure: Failure) -> Versioned:
        before = row.workspace
        after = fail(before, failure, self._clock.now(), max_retry=self._settings.max_retry, jitter=self._random())
        self._deadline.pop(before.id, None)
        _log.warning(
            "an attempt failed",
            workspace_id=before.id,
            operation=before.operation.value,
            reason=failure.reason.value,
            error=failure.message,
        )
        self._metrics.operations.labels(before.operation.value, "failed").inc()
        still = before.blocked is not None and after.blocked is not None
        events = () if still else (timeline.failed(before.operation, failure, after),)
        return await self._commit(before, after, *events)

    async def _keep(self, row: Versioned, observed: Workspace) -> Versioned:
        """Write the observation if it differs from the row."""
        before = row.workspace
        stale = before.observed_at is None or self._clock.now() - before.observed_at >= OBSERVED_EVERY
        if observed == before and not stale:
            return row
        return await self._commit(before, observed, *_timeline_of(before, observed))

    async def _commit(
        self,
        before: Workspace,
        after: Workspace,
        *events: TimelineEvent,
        is_intent: bool = False,
        generation: ArchiveReceipt | None = None,
    ) -> Versioned:
        now = self._clock.now()
        change = Change(before, replace(after, observed_at=now), is_intent, events, generation)
        row = await self._store.commit(self._lease.epoch, change, now)
        if row is None:
            raise _RowMoved
        return row

    def _ended(self, before: Workspace, outcome: str) -> None:
        self._deadline.pop(before.id, None)
        if before.operation is not Operation.NONE:
            self._metrics.operations.labels(before.operation.value, outcome).inc()
        _log.info("operation ended", workspace_id=before.id, operation=before.operation.value, outcome=outcome)

    async def _cleanup_staging(self, workspace: Workspace, operation: Operation) -> None:
        if operation not in (Operation.PROVISIONING, Operation.RESTORING, Operation.ARCHIVING):
            return
        try:
            await self._actor.cleanup_staging(workspace, self._lease.fence)
        except Deposed:
            raise
        except CodeHubError as error:
            _log.info("staging stays until the next operation", workspace_id=workspace.id, error=str(error))

    def _deadline_of(self, workspace: Workspace) -> ProgressDeadline:
        which = (workspace.operation, workspace.archive_op_id, workspace.op_started_at)
        known = self._deadline.get(workspace.id)
        if known is None or known[0] != which:
            known = self._deadline[workspace.id] = (
                which,
                ProgressDeadline(self._clock, self._settings.operation_timeout_s),
            )
        return known[1]

    async def _restarts_too_often(self, workspace: Workspace) -> bool:
        since = self._clock.now() - RESTARTS_WINDOW
        return await self._store.restarts_since(workspace.id, since) >= RESTARTS_ALLOWED

    def _seems_lost_with_many(self, workspace_id: str) -> bool:
        self._losses.volumes.add(workspace_id)
        return bool(self._losses.alarm)

    def _retention_is_over(self, workspace: Workspace) -> bool:
        if workspace.operation is not Operation.DELETING or workspace.op_started_at is None:
            return False
        retention = timedelta(seconds=self._settings.deleted_retention_s)
        return self._clock.now() - workspace.op_started_at >= retention


def _timeline_of(before: Workspace, after: Workspace) -> list[TimelineEvent]:
    """Changes found by observation that belong in the timeline."""
    if after.blocked is not None and before.blocked is None:
        return [timeline.blocked(after.blocked)]
    if before.blocked is not None and after.blocked is None:
        return [timeline.unblocked(before.blocked)]
    return []


@dataclass(slots=True)
class _Current:
    row: Versioned


def _unforeseen(error: Exception) -> Failure:
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        where = f" that holds {error.filename}" if error.filename else ""
        return Failure(ErrorReason.OUT_OF_SPACE, f"no space left on the disk{where}: free some space")
    return Failure(ErrorReason.ACTION_FAILED, f"{type(error).__name__}: {error}")


def _deadline_exceeded(settings: ControllerSettings) -> ProgressDeadlineExceeded:
    return ProgressDeadlineExceeded(f"no progress for {settings.operation_timeout_s:g} s")
