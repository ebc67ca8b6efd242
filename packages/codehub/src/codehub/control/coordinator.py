"""The coordinator: wait to be elected, lead, repeat. Any number may run; one leads.

```
 campaign ──won──► term(epoch) ┬ hold       pings the lock; lost → everything below is cancelled first
    ▲                          ├ EventListener
    │                          ├ WorkspaceController
    │                          ├ TTL Runner
    │                          ├ Schedule Runner
    │                          ├ Disk Runner
    │                          ├ SetupLinks
    └───────lost, or a fault───┴ GC Runner
```
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final, cast

import structlog

from codehub.control.act import Actor
from codehub.control.controller import WorkspaceController
from codehub.control.deps import CoordinatorDeps, CoordinatorSettings
from codehub.control.dev_images import DevImages
from codehub.control.disk_runner import DiskRunner
from codehub.control.event_listener import EventListener
from codehub.control.gc_runner import GcRunner
from codehub.control.guarded_backends import GuardedBackends
from codehub.control.health import HealthTracker
from codehub.control.health_server import HealthState, health_server
from codehub.control.heartbeat import Heartbeat, publish_heartbeats
from codehub.control.loss_guard import LossGuard
from codehub.control.metrics import Metrics
from codehub.control.observe import Observer
from codehub.control.reconcile import Reconciler
from codehub.control.resync import Resync
from codehub.control.schedule_runner import ScheduleRunner
from codehub.control.setup_links import SetupLinks
from codehub.control.stores import StoreCheck, WrongStore
from codehub.control.ttl_runner import TtlRunner
from codehub.domain.errors import BackendDown, CodeHubError, FenceLost, Transient
from codehub.domain.model import Workspace
from codehub.own_task import in_own_task
from codehub.ports.control_store import StoreRegistry
from codehub.ports.leadership import Lease

_log = structlog.get_logger()

# How often a coordinator with the wrong stores checks again: its disk may have been mounted meanwhile.
_WRONG_STORE_S: Final = 5.0

__all__ = ["CoordinatorDeps", "CoordinatorSettings", "run_coordinator"]


class ComponentEnded(CodeHubError):
    """A component's loop returned. It must run until it is cancelled."""


async def run_coordinator(
    settings: CoordinatorSettings, deps: CoordinatorDeps, *, metrics: Metrics | None = None
) -> None:
    """Campaign and lead until cancelled."""
    metrics = metrics or Metrics()
    health = HealthState(settings.node_id, deps.clock, metrics)
    async with health_server(settings.health_bind, health):
        while True:
            await in_own_task(_campaign(settings, deps, metrics, health))
            await asyncio.sleep(settings.campaign_pause_s * (0.5 + deps.random()))


async def _campaign(
    settings: CoordinatorSettings, deps: CoordinatorDeps, metrics: Metrics, health: HealthState
) -> None:
    """Wait for one election and lead until that term ends."""
    stores = _store_check(deps)
    try:
        await stores.before_campaign()
        if health.refuses:
            await _refuse("", settings, deps, metrics, health)
        async with deps.election.campaign(settings.node_id) as lease:
            await stores.in_term(lease)
            await _lead(lease, settings, deps, metrics, health, stores)
    except* WrongStore as errors:
        if health.is_news(why := _first_message(errors)):
            _log.error("refuses to lead", node_id=settings.node_id, why=why)
        await _refuse(why, settings, deps, metrics, health)
        await asyncio.sleep(_WRONG_STORE_S)
    except* (BackendDown, Transient, FenceLost) as errors:
        if health.is_news(message := _first_message(errors)):
            _log.warning("does not lead", node_id=settings.node_id, error=message)
    except* Exception as errors:  # noqa: BLE001 - any failure ends the term, and the coordinator campaigns again
        _log.error("a component failed; leadership is given up", node_id=settings.node_id, exc_info=errors)


async def _refuse(
    why: str, settings: CoordinatorSettings, deps: CoordinatorDeps, metrics: Metrics, health: HealthState
) -> None:
    """Report why this coordinator does not lead, or that nothing keeps it from leading any more."""
    health.refuses = why
    metrics.refuses_to_lead.set(1 if why else 0)
    assert deps.registry is not None
    try:
        await deps.registry.note_refusal(settings.node_id, why)
    except (BackendDown, Transient) as error:
        _log.info("the refusal to lead is not recorded", error=str(error))


async def _lead(
    lease: Lease,
    settings: CoordinatorSettings,
    deps: CoordinatorDeps,
    metrics: Metrics,
    health: HealthState,
    stores: StoreCheck,
) -> None:
    """One term. If any part ends, all other parts are cancelled before anything else happens."""
    _log.info("leads", node_id=lease.holder_id, epoch=lease.epoch)
    metrics.leader_changes.labels("won").inc()
    metrics.is_leader.set(1)
    heartbeats = {name: Heartbeat(name, deps.clock, metrics, lease.fence) for name in _component_names(deps)}
    health.leads(lease, list(heartbeats.values()))
    try:
        async with asyncio.TaskGroup() as term:
            term.create_task(lease.hold())
            term.create_task(stores.watch(lease))
            for name, loop in _components(lease, settings, deps, metrics, heartbeats).items():
                term.create_task(_never_ends(name, loop), name=name)
            term.create_task(publish_heartbeats(list(heartbeats.values()), deps.store, lease))
    finally:
        metrics.is_leader.set(0)
        metrics.leader_changes.labels("lost").inc()
        health.follows()
        _log.info("no longer leading", node_id=lease.holder_id, epoch=lease.epoch)


def _component_names(deps: CoordinatorDeps) -> tuple[str, ...]:
    names = ("event_listener", "workspace_controller", "ttl_runner", "schedule_runner", "disk_runner", "gc_runner")
    return names if deps.setup_desk is None else (*names, "setup_links")


def _components(
    lease: Lease,
    settings: CoordinatorSettings,
    deps: CoordinatorDeps,
    metrics: Metrics,
    heartbeats: dict[str, Heartbeat],
) -> dict[str, Coroutine[Any, Any, None]]:
    backends = GuardedBackends(deps.instances, deps.homes, deps.archives, deps.clock)
    health = HealthTracker(deps.clock)
    observer = Observer(backends, health, deps.profile_of)
    images = None if deps.dev_images is None else DevImages(deps.dev_images, deps.store, lease)
    setup = None
    if deps.setup_desk is not None and deps.setup_links is not None:
        setup = SetupLinks(
            lease.epoch, deps.setup_desk, deps.setup_links, deps.instances, heartbeats["setup_links"], images
        )
    actor = Actor(
        backends,
        health,
        deps.profile_of,
        deps.clock,
        deps.new_id,
        deps.random,
        _loader(deps),
        setup,
        images,
        deps.store.archive_digest,
    )
    losses = LossGuard(settings.controller.max_losses)
    reconciler = Reconciler(
        deps.store,
        observer,
        actor,
        lease,
        deps.clock,
        settings.controller,
        metrics,
        deps.new_id,
        deps.random,
        losses,
    )
    controller = WorkspaceController(
        deps.store,
        backends,
        observer,
        Resync(deps.store, backends, observer, deps.clock, losses),
        reconciler,
        lease,
        deps.clock,
        settings.controller,
        metrics,
        heartbeats["workspace_controller"],
    )
    listener = EventListener(
        deps.notifications,
        deps.bus,
        controller.wake,
        heartbeats["event_listener"],
        user_setup_changed=setup.user_setup_changed if setup is not None else lambda: None,
        sse_prefix=settings.sse_prefix,
        wake_prefix=settings.wake_prefix,
    )
    ttl = TtlRunner(
        deps.ttl_store,
        deps.activity,
        deps.asks_activity,
        deps.instances,
        deps.profile_of,
        controller.wake,
        lease,
        deps.clock,
        settings.ttl,
        heartbeats["ttl_runner"],
    )
    schedule = ScheduleRunner(
        deps.schedule_store, controller.wake, lease, deps.clock, settings.schedule, heartbeats["schedule_runner"]
    )
    disk = DiskRunner(deps.disk_store, backends, lease, deps.clock, settings.disk, heartbeats["disk_runner"])
    gc = GcRunner(deps.gc_store, deps.archives, lease, deps.clock, settings.gc, heartbeats["gc_runner"])
    components = {
        "event_listener": listener.run(),
        "workspace_controller": controller.run(),
        "ttl_runner": ttl.run(),
        "schedule_runner": schedule.run(),
        "disk_runner": disk.run(),
        "gc_runner": gc.run(),
    }
    return components if setup is None else {**components, "setup_links": setup.run()}


def _loader(deps: CoordinatorDeps) -> Callable[[str], Awaitable[Workspace | None]]:
    async def load(workspace_id: str) -> Workspace | None:
        found = await deps.store.load([workspace_id])
        return found[0].workspace if found else None

    return load


def _store_check(deps: CoordinatorDeps) -> StoreCheck:
    stores = deps.stores if deps.registry is not None else ()
    registry = cast(StoreRegistry, deps.registry)
    return StoreCheck(stores, registry, deps.homes.get("local-dir"), deps.archives, deps.installation_id, deps.new_id)


async def _never_ends(name: str, loop: Coroutine[Any, Any, None]) -> None:
    await loop
    raise ComponentEnded(f"{name} ended unexpectedly")


def _first_message(errors: BaseExceptionGroup[Any]) -> str:
    error: BaseException = errors
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return str(error) or type(error).__name__
