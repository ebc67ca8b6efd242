"""`codehub serve coordinator`: one of the coordinators, of which one leads."""

from __future__ import annotations

import asyncio
import random
import secrets
import ssl
from collections.abc import Mapping

import click

from codehub.adapters.build_files import WorkspacedFiles
from codehub.adapters.postgres.control_disk import PostgresDiskStore
from codehub.adapters.postgres.control_gc import PostgresGcStore
from codehub.adapters.postgres.control_leader import PostgresElection
from codehub.adapters.postgres.control_notifications import PostgresNotifications
from codehub.adapters.postgres.control_schedule import PostgresScheduleStore
from codehub.adapters.postgres.control_store import PostgresControlStore
from codehub.adapters.postgres.control_ttl import PostgresTtlStore
from codehub.adapters.postgres.dev_images import PostgresDevImageStore
from codehub.adapters.registry.features import RegistryFeatures
from codehub.adapters.registry.http import RegistryHttp
from codehub.adapters.registry.logins import RegistryLogins
from codehub.adapters.setup_channel import WorkspacedLinks
from codehub.adapters.system_clock import SystemClock
from codehub.adapters.upstream_activity import UpstreamActivity
from codehub.cli.serve.part import part_settings, run_part
from codehub.cli.serve.user_secrets import git_ca_of, secret_box
from codehub.cli.stack.datadir import refuse_unfinished_restore
from codehub.control.coordinator import run_coordinator
from codehub.control.deps import (
    ControllerSettings,
    CoordinatorDeps,
    CoordinatorSettings,
    GcSettings,
    ScheduleSettings,
    TtlSettings,
)
from codehub.control.dev_images import DevImageDeps
from codehub.domain.effective import effective_profile
from codehub.domain.errors import BackendDown, Invalid, NotFound
from codehub.domain.feature_refs import FeatureRules
from codehub.domain.images import parse_image
from codehub.domain.limits import RunningLimits
from codehub.domain.model import Workspace
from codehub.domain.profiles import AppProfile, Catalog, Runs
from codehub.ports.instances import Instances
from codehub.services.setup_desk import PostgresSetupDesk
from codehub.settings import Settings
from codehub.wiring import World, new_id, open_world


@click.command()
def coordinator() -> None:
    """Run a coordinator. One leads, the others stand by.

    \b
    Example:
      env $(codehub env) codehub serve coordinator    a second one in addition to `codehub up`
    """
    settings = part_settings()
    refuse_unfinished_restore(settings.data_dir)
    run_part(_serve(settings))


async def _serve(settings: Settings) -> None:
    async with open_world(settings, name="coordinator") as world:
        await asyncio.to_thread(world.backends.record_isolation)
        await run_coordinator(coordinator_settings(settings), coordinator_deps(world))


def coordinator_deps(world: World) -> CoordinatorDeps:
    settings, clock = world.settings, SystemClock()
    feature_rules = FeatureRules((*settings.allowed_features, *settings.allowed_images))
    return CoordinatorDeps(
        election=PostgresElection(
            settings.database_url, lock_id=settings.lock_id, retry_interval_s=settings.retry_interval_s, clock=clock
        ),
        store=PostgresControlStore(world.database),
        ttl_store=PostgresTtlStore(world.database),
        gc_store=PostgresGcStore(world.database),
        schedule_store=PostgresScheduleStore(world.database),
        disk_store=PostgresDiskStore(world.database),
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
        setup_desk=setup_desk(world),
        setup_links=WorkspacedLinks(),
        dev_images=DevImageDeps(
            builder=world.backends.images,
            files=WorkspacedFiles(),
            store=PostgresDevImageStore(world.database),
            check=lambda image: world.catalog.resolve(str(parse_image(image)), Runs.IMAGE),
            profile_of=lambda workspace: profile_of(world.catalog, world.backends.instances, workspace),
            new_place=lambda: secrets.token_hex(16),
            features=RegistryFeatures(
                RegistryHttp(
                    feature_rules.named_hosts, registry_tls(settings), RegistryLogins(settings.registry_auth_file)
                ),
                settings.data_dir / "cache" / "features",
            ),
            feature_rules=feature_rules,
            builds=settings.devcontainer_builds,
            timeout_s=2 * settings.build_timeout_s,  # a pull and a build
        ),
    )


def setup_desk(world: World) -> PostgresSetupDesk:
    settings = world.settings

    def runs(name: str) -> Runs:
        backend = world.backends.instances.get(name)
        return Runs.COMMAND if backend is None else backend.runs

    return PostgresSetupDesk(
        world.database,
        secret_box(settings),
        runs,
        SystemClock().now,
        git_ca_of(settings),
        settings.partial_clone_bytes,
        settings.setup_timeout_s,
    )


def registry_tls(settings: Settings) -> ssl.SSLContext | None:
    if settings.registry_ca_file is None:
        return None
    context = ssl.create_default_context()
    try:
        context.load_verify_locations(settings.registry_ca_file)
    except (OSError, ssl.SSLError) as error:
        raise Invalid(f"CODEHUB_REGISTRY_CA_FILE: {settings.registry_ca_file} cannot be read: {error}") from error
    return context


def profile_of(catalog: Catalog, instances: Mapping[str, Instances], workspace: Workspace) -> tuple[str, AppProfile]:
    """Return what a workspace runs, and with which profile."""
    backend = instances.get(workspace.instance_backend)
    if backend is None:
        raise BackendDown(f"the instance backend {workspace.instance_backend} is not available here")
    try:
        return effective_profile(workspace, catalog, backend.runs)
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
        schedule=ScheduleSettings(limits=RunningLimits(settings.max_running_per_user, settings.max_running_global)),
        health_bind=settings.health_bind,
        sse_prefix=settings.sse_prefix,
        wake_prefix=settings.wake_prefix,
    )
