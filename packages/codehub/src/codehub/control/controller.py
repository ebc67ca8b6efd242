"""The WorkspaceController: resyncs all workspaces, wakes workers for those that need one, and probes running instances.

```
 wake hint ───────────────┐
 backend event ───────────┼──► keyed queue ──► worker ──► reconcile (observe, decide, commit, act)
 resync (interval) ───────┘         ▲            │ Again(after)
 prober (health) ───────────────────┴────────────┘
```

Everything but the resync is a hint: if all hints are lost, it converges one idle interval later.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final

import structlog

from codehub.control.deps import ControllerSettings
from codehub.control.guarded_backends import GuardedBackends
from codehub.control.heartbeat import Heartbeat
from codehub.control.metrics import Metrics
from codehub.control.observe import Observer
from codehub.control.queue import KeyedQueue
from codehub.control.reconcile import Again, Reconciler
from codehub.control.resync import Resync
from codehub.domain.errors import BackendDown, CodeHubError, Deposed, FenceLost, Transient
from codehub.ports.clock import Clock
from codehub.ports.control_store import ControlStore
from codehub.ports.leadership import Lease

_log = structlog.get_logger()

# Delay after an unexpected failure of one workspace's reconciliation. Other workspaces are not delayed.
_STUMBLED_S: Final = 10.0
_DATABASE_AWAY_S: Final = 1.0
# Delay before a broken event stream is reopened. Until then, the resync interval is the latency.
_REOPEN_S: Final = 2.0
OBSERVED_AT_ONCE: Final = 1_000


class WorkspaceController:
    def __init__(
        self,
        store: ControlStore,
        backends: GuardedBackends,
        observer: Observer,
        resync: Resync,
        reconciler: Reconciler,
        lease: Lease,
        clock: Clock,
        settings: ControllerSettings,
        metrics: Metrics,
        heartbeat: Heartbeat,
    ) -> None:
        self._store = store
        self._backends = backends
        self._observer = observer
        self._resync = resync
        self._reconciler = reconciler
        self._lease = lease
        self._clock = clock
        self._settings = settings
        self._metrics = metrics
        self._heartbeat = heartbeat
        self._queue = KeyedQueue()
        self._reconciler.on_turn = self._queue.add
        self._woken = asyncio.Event()
        self._alarm = ""
        self._active_until = 0.0

    def wake(self, ids: Iterable[str] = ()) -> None:
        """Reconcile these workspaces now; without ids, resync all of them."""
        ids = list(ids)
        self._queue.add_all(ids)
        self._reconciler.cancellation.hint(ids)
        self._active_until = self._clock.monotonic() + self._settings.active_duration_s
        if not ids:
            self._woken.set()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._tick_for_ever())
            group.create_task(self._probe_for_ever())
            for _ in range(self._settings.max_parallel):
                group.create_task(self._work())
            for name in self._backends.instances:
                group.create_task(self._watch(name))

    async def _tick_for_ever(self) -> None:
        next_resync = float("-inf")
        while True:
            full = self._woken.is_set() or self._clock.monotonic() >= next_resync
            self._woken.clear()
            async with self._heartbeat.tick():
                if full:
                    next_resync = self._clock.monotonic() + self._settings.idle_interval_s
                    await self._resync_all()
                else:
                    idle = set(self._resync.under_way()) - self._queue.delayed - self._queue.working
                    self._queue.add_all(sorted(idle))
            self._tell_of_backends()
            self._metrics.queue_depth.set(len(self._queue))
            await self._pause(next_resync)

    def _tell_of_backends(self) -> None:
        """Report backends that do not answer in metrics and in the heartbeat."""
        troubles = self._backends.health()
        for name, trouble in troubles.items():
            self._metrics.backend_up.labels(name).set(0 if trouble else 1)
        alarm = self._resync.alarm
        self._metrics.losses_paused.set(1 if alarm else 0)
        if alarm and alarm != self._alarm:
            _log.error("nothing is marked as lost", why=alarm)
        self._alarm = alarm
        if problems := "; ".join(trouble for trouble in (*troubles.values(), alarm) if trouble):
            self._heartbeat.last_error = "; ".join(part for part in (self._heartbeat.last_error, problems) if part)

    async def _pause(self, next_resync: float) -> None:
        now = self._clock.monotonic()
        is_active = now < self._active_until or bool(self._resync.under_way())
        wait_s = self._settings.active_interval_s if is_active else max(0.0, next_resync - now)
        try:
            async with asyncio.timeout(min(wait_s, self._settings.idle_interval_s)):
                await self._woken.wait()
        except TimeoutError:
            return

    async def _resync_all(self) -> None:
        self._queue.add_all(await self._resync.observe(self._queue.working))
        self._queue.add_all(await self._resync.changed_archives())
        stale = self._resync.stale()
        for first in range(0, len(stale), OBSERVED_AT_ONCE):
            batch = stale[first : first + OBSERVED_AT_ONCE]
            self._resync.note_observed(await self._store.note_observed(self._lease.epoch, batch, self._clock.now()))

    async def _work(self) -> None:
        while True:
            key = await self._queue.take()
            try:
                await self._reconcile(key)
            finally:
                self._queue.done(key)

    async def _reconcile(self, key: str) -> None:
        try:
            result, row = await self._reconciler.reconcile(key)
        except Deposed:
            raise
        except (BackendDown, Transient) as error:
            _log.info("cannot reconcile for the moment", workspace_id=key, error=str(error))
            self._queue.add_after(key, _DATABASE_AWAY_S)
            return
        except FenceLost:
            self._lease.fence()  # the term is over, which ends this component
            self._queue.add_after(key, _DATABASE_AWAY_S)
            return
        except Exception:  # noqa: BLE001 - a failure of one workspace must not end the term
            _log.exception("a reconciliation failed", workspace_id=key)
            self._queue.add_after(key, _STUMBLED_S)
            return
        self._resync.note(key, row)
        match result:
            case Again(after_s) if after_s > 0:
                self._queue.add_after(key, after_s)
            case Again():
                self._queue.add(key)

    async def _watch(self, name: str) -> None:
        """Backend events are hints that shorten the latency; the resync interval is the fallback."""
        while True:
            try:
                async for workspace_id in self._backends.instances[name].watch():
                    self.wake([workspace_id])
            except CodeHubError as error:
                _log.debug("a backend's event stream broke", backend=name, error=str(error))
            except Exception:  # noqa: BLE001 - events hold what workspaces choose, such as the labels of an image
                _log.exception("a backend's event stream failed", backend=name)
            await asyncio.sleep(_REOPEN_S)

    async def _probe_for_ever(self) -> None:
        """Probe each running instance once per idle interval, evenly spread."""
        while True:
            running = self._resync.running()
            pause_s = self._settings.idle_interval_s / max(1, len(running))
            for workspace, identity in running:
                await asyncio.sleep(pause_s)
                try:
                    if await self._observer.probe(workspace, identity):
                        self._queue.add(workspace.id)
                except CodeHubError as error:
                    _log.debug("could not be probed", workspace_id=workspace.id, error=str(error))
                except Exception:  # noqa: BLE001 - the workspace chooses the answer, and must not end the term by it
                    _log.exception("a probe failed", workspace_id=workspace.id)
            if not running:
                await asyncio.sleep(self._settings.idle_interval_s)
