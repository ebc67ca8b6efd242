"""The TTL Runner: idle → STANDBY, long asleep → ARCHIVED. docs/control-plane.md gives the order of a tick."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta

import structlog

from codehub.control.deps import ProfileOf, TtlSettings
from codehub.control.heartbeat import Heartbeat
from codehub.domain.errors import CodeHubError
from codehub.domain.model import Workspace
from codehub.domain.routing import workspace_path
from codehub.domain.ttl import ActivityCoverage, extend_coverage
from codehub.ports.activity import DurableActivity
from codehub.ports.clock import Clock
from codehub.ports.control_store import TtlStore
from codehub.ports.instances import Instances
from codehub.ports.leadership import Lease
from codehub.ports.liveness import AsksActivity

_log = structlog.get_logger()

# How many IDEs are asked for their activity at the same time.
_ASKED_AT_ONCE = 16
# How long a workspace's use of the CPU is looked at, and from which share of a core on it counts as work.
_CPU_WINDOW_S = 5.0
_CPU_BUSY_PERCENT = 5.0


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
        # Whether the last look at the activity store succeeded. A new term does not know, and a wrong guess is dear.
        self._saw = False

    async def run(self) -> None:
        while True:
            async with self._heartbeat.tick():
                await self.tick()
            await asyncio.sleep(self._settings.interval_s)

    async def tick(self) -> None:
        coverage = await self._take_in_activity()
        now = self._clock.now()
        standby = timedelta(seconds=self._settings.standby_s)
        if idle := await self._store.idle(now, standby, coverage.gaps):
            await self._ask(idle, now)
        slept = await self._store.put_to_sleep(self._lease.epoch, now, standby, coverage.gaps)
        archived = await self._store.put_to_archive(
            self._lease.epoch, now, timedelta(seconds=self._settings.archive_s)
        )
        if changed := [*slept, *archived]:
            _log.info("put to rest", slept=len(slept), archived=len(archived))
            self._wake(changed)

    async def _take_in_activity(self) -> ActivityCoverage:
        """Redis → `last_access_at`, then forget exactly what was stored. If this fails the tick ends here."""
        saw, self._saw = self._saw, False
        unbroken = await self._activity.unbroken() and saw
        pending = await self._activity.pending()
        await self._store.note_access(
            self._lease.epoch, {id_: datetime.fromtimestamp(at, UTC) for id_, at in pending.items()}
        )
        await self._activity.forget(pending)
        settings = self._settings
        coverage = extend_coverage(
            await self._store.coverage(),
            self._clock.now(),
            unbroken=unbroken,
            longest_gap=timedelta(seconds=2 * settings.interval_s + settings.flush_interval_s),
            lag=timedelta(seconds=settings.flush_interval_s),
            keep=timedelta(seconds=2 * settings.standby_s) + timedelta(days=7),
        )
        await self._store.record_coverage(self._lease.epoch, coverage)
        self._saw = True
        return coverage

    async def _ask(self, idle: Iterable[Workspace], now: datetime) -> None:
        """A profile may say where its IDE tells of activity: asked only for what is about to be put to sleep."""
        limit = asyncio.Semaphore(_ASKED_AT_ONCE)

        async def ask(workspace: Workspace) -> tuple[str, datetime | None]:
            async with limit:
                return workspace.id, await self._last_active(workspace, now)

        idle = list(idle)
        answers = await asyncio.gather(*(ask(workspace) for workspace in idle))
        active = {id_: at for id_, at in answers if at is not None}
        active |= dict.fromkeys(await self._computing([row for row in idle if row.id not in active]), now)
        if active:
            await self._store.note_access(self._lease.epoch, active)

    async def _computing(self, idle: list[Workspace]) -> list[str]:
        """Those that use the CPU: a test run or a training goes on when its tab is closed."""
        if not any([await self._cpu_percent(workspace) is not None for workspace in idle]):
            return []  # nothing here knows
        await asyncio.sleep(_CPU_WINDOW_S)
        used = [(workspace.id, await self._cpu_percent(workspace)) for workspace in idle]
        return [id_ for id_, percent in used if percent is not None and percent > _CPU_BUSY_PERCENT]

    async def _cpu_percent(self, workspace: Workspace) -> float | None:
        instances = self._instances.get(workspace.instance_backend)
        try:
            used = None if instances is None else await instances.usage(workspace.id)
        except CodeHubError:
            return None
        return None if used is None else used.get("cpu_percent")

    async def _last_active(self, workspace: Workspace, now: datetime) -> datetime | None:
        try:
            _, profile = self._profile_of(workspace)
            instances = self._instances.get(workspace.instance_backend)
            if profile.activity_path is None or instances is None:
                return None
            upstream = await instances.resolve_upstream(workspace.id)
            if upstream is None:
                return None
            prefix = "" if profile.strip_prefix else workspace_path(workspace.id).rstrip("/")
            return await self._asks.last_active(upstream, prefix + profile.activity_path, now)
        except CodeHubError as error:
            # Unreachable is not active: what hangs silently is put to sleep.
            _log.debug("was not asked for activity", workspace_id=workspace.id, error=str(error))
            return None
