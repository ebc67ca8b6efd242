"""The TTL Runner: idle → STANDBY, long asleep → ARCHIVED. docs/control-plane.md describes the order within a tick."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import UTC, datetime, timedelta

import structlog

from codehub.control.deps import ProfileOf, TtlSettings
from codehub.control.heartbeat import Heartbeat
from codehub.domain.busy import Work, judge_busy
from codehub.domain.errors import BackendDown, CodeHubError
from codehub.domain.model import Busy, Workspace
from codehub.domain.routing import workspace_path
from codehub.domain.templates import LONGEST_TTL
from codehub.domain.ttl import ActivityCoverage, extend_coverage, longest_gap
from codehub.ports.activity import DurableActivity
from codehub.ports.clock import Clock
from codehub.ports.control_store import TtlStore
from codehub.ports.instances import Instances, InstanceStatus, Upstream
from codehub.ports.leadership import Lease
from codehub.ports.liveness import AsksActivity

_log = structlog.get_logger()

# How many IDEs are asked for their activity at the same time.
_MAX_CONCURRENT_PROBES = 16
_HELPER_PATH = "/activity"  # of workspaced
# What is shown as the reason why a workspace stays awake while nobody knows whether a program works in it.
_SILENT_HELPER = "workspaced, which does not answer"
_SILENT_IDE = "the IDE, which does not answer"
_NO_PROFILE = "the IDE, whose profile was removed"


class TtlRunner:
    def __init__(
        self,
        store: TtlStore,
        activity: DurableActivity,
        asks: AsksActivity,
        instances: Mapping[str, Instances],
        profile_of: ProfileOf,
        wake: Callable[[Iterable[str]], None],
        lease: Lease,
        clock: Clock,
        settings: TtlSettings,
        heartbeat: Heartbeat,
    ) -> None:
        self._store = store
        self._activity = activity
        self._asks = asks
        self._instances = instances
        self._profile_of = profile_of
        self._wake = wake
        self._lease = lease
        self._clock = clock
        self._settings = settings
        self._heartbeat = heartbeat
        # How long the last tick took, by a clock that stands still while the machine is suspended: that time is a gap.
        self._last_tick = timedelta()
        # Whether the last read of the activity store succeeded. A new term does not know; guessing wrong stops work.
        self._saw = False

    async def run(self) -> None:
        while True:
            async with self._heartbeat.tick():
                await self.tick()
            await asyncio.sleep(self._settings.interval_s)

    async def tick(self) -> None:
        coverage = await self._store_activity()
        begun = self._clock.monotonic()
        await self._put_to_rest(coverage, self._clock.now())
        self._last_tick = timedelta(seconds=self._clock.monotonic() - begun)

    async def _put_to_rest(self, coverage: ActivityCoverage, now: datetime) -> None:
        standby = timedelta(seconds=self._settings.standby_s)
        unasked: Collection[str] = ()
        if idle := await self._store.idle(now, standby, coverage.gaps):
            unasked = await self._ask(idle, now)
        slept = await self._store.put_to_sleep(self._lease.epoch, now, standby, coverage.gaps, unasked)
        archived = await self._store.put_to_archive(
            self._lease.epoch, now, timedelta(seconds=self._settings.archive_s)
        )
        if changed := [*slept, *archived]:
            _log.info("put to rest", slept=len(slept), archived=len(archived))
            self._wake(changed)

    async def _store_activity(self) -> ActivityCoverage:
        """Store activity from Redis in `last_access_at`, then delete exactly what was stored. A failure ends the tick."""
        saw, self._saw = self._saw, False
        unbroken = await self._activity.unbroken() and saw
        pending = await self._activity.pending()
        await self._store.note_access(
            self._lease.epoch, {id_: datetime.fromtimestamp(at, UTC) for id_, at in pending.items()}
        )
        await self._activity.forget(pending)
        settings = self._settings
        lag = timedelta(seconds=settings.flush_interval_s)
        # Gaps are kept for as long as any template's TTL may count: a dropped gap would turn into idle time.
        coverage = extend_coverage(
            await self._store.coverage(),
            self._clock.now(),
            unbroken=unbroken,
            longest_gap=longest_gap(timedelta(seconds=settings.interval_s), lag, self._last_tick),
            lag=lag,
            keep=2 * max(timedelta(seconds=settings.standby_s), LONGEST_TTL) + timedelta(days=7),
        )
        await self._store.record_coverage(self._lease.epoch, coverage)
        self._saw = True
        return coverage

    async def _ask(self, idle: Iterable[Workspace], now: datetime) -> Collection[str]:
        """Whether a program is working in it. Asked only for workspaces that are about to be put to sleep.

        Returns the ids of those that could not be asked, because their backend or their node does not answer.
        """
        slots = asyncio.Semaphore(_MAX_CONCURRENT_PROBES)
        busy_max = timedelta(seconds=self._settings.busy_max_s)

        unasked: set[str] = set()

        async def ask(workspace: Workspace) -> tuple[Workspace, Work | None]:
            async with slots:
                try:
                    status = await self._status(workspace)
                except Exception as error:  # noqa: BLE001 - one workspace must not end the term, and unknown is not idle
                    _log.info("stays awake: it cannot be asked", workspace_id=workspace.id, error=str(error))
                    unasked.add(workspace.id)
                    return workspace, None
                return workspace, await self._work(workspace, status, now)

        answers = await asyncio.gather(*(ask(workspace) for workspace in idle))
        # Finished work counts as an access at that time. Running work keeps the workspace awake, and the reason is shown.
        over = {workspace.id: work.at for workspace, work in answers if work is not None and work.at < now}
        if over:
            await self._store.note_access(self._lease.epoch, over)
        found: dict[str, Busy | None] = {}
        for workspace, work in answers:
            busy = judge_busy(workspace, work if work is not None and work.at >= now else None, now, busy_max)
            if (busy is not None or workspace.busy is not None) and workspace.id not in unasked:
                found[workspace.id] = busy
        await self._store.note_busy(self._lease.epoch, found)
        return unasked

    async def _status(self, workspace: Workspace) -> InstanceStatus:
        """Raise if nobody knows what runs: the backend or the node does not answer, or the engine answers with an error."""
        instances = self._instances.get(workspace.instance_backend)
        if instances is None:
            raise BackendDown(f"the instance backend {workspace.instance_backend} is not available here")
        status = await instances.status(workspace.id)
        if status.unknown:
            raise BackendDown(status.unknown)
        return status

    async def _work(self, workspace: Workspace, status: InstanceStatus, now: datetime) -> Work | None:
        """Ask workspaced, then the IDE.

        What does not answer counts as work: nobody knows whether a program runs. As with any work, BUSY_MAX limits how
        long it keeps the workspace awake, so that a hung workspace is put to sleep too.
        """
        if not status.running:
            return None
        helper, silent = None, Work(now, _SILENT_HELPER)
        if status.workspaced is not None:
            helper = await self._answer(workspace, status.workspaced, _HELPER_PATH, silent)
            if helper is not None and helper is not silent:
                return helper
        ide = await self._work_of_ide(workspace, status.upstream, now)
        return helper if ide is None or (helper is not None and ide.at < now) else ide

    async def _work_of_ide(self, workspace: Workspace, upstream: Upstream | None, now: datetime) -> Work | None:
        try:
            _, profile = self._profile_of(workspace)
        except CodeHubError as error:
            _log.info("nobody knows how to ask the IDE", workspace_id=workspace.id, error=str(error))
            return Work(now, _NO_PROFILE)
        if profile.activity_path is None:
            return None
        silent = Work(now, _SILENT_IDE)
        if upstream is None:
            return silent
        prefix = "" if profile.strip_prefix else workspace_path(workspace.id).rstrip("/")
        return await self._answer(workspace, upstream, prefix + profile.activity_path, silent)

    async def _answer(self, workspace: Workspace, upstream: Upstream, path: str, silent: Work) -> Work | None:
        """Return the reported work, and `silent` if there is no answer."""
        try:
            return await self._asks.work(upstream, path, silent.at)
        except CodeHubError as error:
            _log.debug("could not get the activity", workspace_id=workspace.id, error=str(error))
        except Exception:  # noqa: BLE001 - the workspace chooses the answer, and must not end the term by it
            _log.exception("asking for the activity failed", workspace_id=workspace.id)
        return silent
