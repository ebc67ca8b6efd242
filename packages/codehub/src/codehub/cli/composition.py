"""Each part from an open world: what the API, the proxy and the coordinator are given."""

from __future__ import annotations

import random
from collections.abc import Mapping

from codehub.adapters.postgres.control_gc import PostgresGcStore
from codehub.adapters.postgres.control_leader import PostgresElection
from codehub.adapters.postgres.control_notifications import PostgresNotifications
from codehub.adapters.postgres.control_store import PostgresControlStore
from codehub.adapters.postgres.control_ttl import PostgresTtlStore
from codehub.adapters.system_clock import SystemClock
from codehub.adapters.upstream_activity import UpstreamActivity
from codehub.api.config import ApiDeps, api_config
from codehub.control.deps import (
    ControllerSettings,
    CoordinatorDeps,
    CoordinatorSettings,
    GcSettings,
    TtlSettings,
)
from codehub.domain.errors import BackendDown, Invalid, NotFound
from codehub.domain.model import Workspace
from codehub.domain.profiles import AppProfile, Catalog
from codehub.ports.archives import ArchiveReceipts
from codehub.ports.instances import Instances
from codehub.proxy.run import ProxyDeps
from codehub.services.workspaces import BackendChoice
from codehub.settings import Settings
from codehub.wiring import World, new_id

_NO_SECOND_USER = (
    "workspaces cannot be kept apart on this machine (`codehub doctor` says why): install bubblewrap and slirp4netns, or "
    "use CODEHUB_RUNTIME=docker, before adding a second user"
)


def api_deps(world: World, receipts: ArchiveReceipts | None = None) -> ApiDeps:
    """`receipts`: instead of the store itself, for an API that may not read it."""
    backends = world.backends

    async def choose() -> BackendChoice:
        chosen = backends.instances[backends.instance_backend]
        return BackendChoice(chosen.name, backends.storage_backend, chosen.runs)

    return ApiDeps(
        database=world.database,
        bus=world.bus,
        config=api_config(world.settings),
        instances=backends.instances,
        archives=receipts or backends.archives,
        choose_backends=choose,
        profiles=world.catalog.profiles,
        second_user_refused=lambda: None if backends.isolates_users() else _NO_SECOND_USER,
    )


def proxy_deps(world: World) -> ProxyDeps:
    return ProxyDeps(
        database=world.database,
        activity=world.activity,
        instances=world.backends.instances,
        catalog=world.catalog,
        now=SystemClock().now,
    )


def coordinator_deps(world: World) -> CoordinatorDeps:
    settings, clock = world.settings, SystemClock()
    return CoordinatorDeps(
        election=PostgresElection(
            settings.database_url, lock_id=settings.lock_id, retry_interval_s=settings.retry_interval_s, clock=clock
        ),
        store=PostgresControlStore(world.database),
        ttl_store=PostgresTtlStore(world.database),
        gc_store=PostgresGcStore(world.database),
        notifications=PostgresNotifications(settings.database_url),
        bus=world.bus,
        activity=world.activity,
        asks_activity=UpstreamActivity(),
        instances=world.backends.instances,
        homes=world.backends.homes,
        archives=world.backends.archives,
        profile_of=lambda workspace: profile_of(world.catalog, world.backends.instances, workspace),
        clock=clock,
        new_id=new_id,
        random=random.random,
        stores=world.backends.stores,
        registry=PostgresControlStore(world.database),
        installation_id=world.installation_id,
    )


def profile_of(catalog: Catalog, instances: Mapping[str, Instances], workspace: Workspace) -> tuple[str, AppProfile]:
    """What a workspace runs, and as what."""
    backend = instances.get(workspace.instance_backend)
    if backend is None:
        raise BackendDown(f"the instance backend {workspace.instance_backend} is not available here")
    try:
        return catalog.resolve(workspace.image_ref, backend.runs)
    except Invalid as error:
        raise NotFound(str(error)) from error


def coordinator_settings(settings: Settings) -> CoordinatorSettings:
    return CoordinatorSettings(
        node_id=settings.node_id,
        controller=ControllerSettings(
            idle_interval_s=settings.idle_interval_s,
            active_interval_s=settings.active_interval_s,
            active_duration_s=settings.active_duration_s,
            operation_timeout_s=settings.operation_timeout_s,
            max_parallel=settings.max_parallel,
            max_retry=settings.max_retry,
            deleted_retention_s=settings.deleted_retention_s,
            max_losses=settings.max_losses,
        ),
        ttl=TtlSettings(
            interval_s=settings.ttl_interval_s,
            standby_s=settings.ttl_standby_s,
            archive_s=settings.ttl_archive_s,
            flush_interval_s=settings.flush_interval_s,
            busy_max_s=settings.busy_max_s,
        ),
        gc=GcSettings(
            interval_s=settings.gc_interval_s,
            keep=settings.archive_keep,
            deleted_retention_s=settings.deleted_retention_s,
        ),
        health_bind=settings.health_bind,
        sse_prefix=settings.sse_prefix,
        wake_prefix=settings.wake_prefix,
    )
