"""Creates the adapters from settings, once per process: the only place where settings meet constructors.

Knows every adapter, but nothing about the API, the proxy or the command line.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path

import uuid_utils

from codehub.adapters.backend_set import BackendOptions, BackendSet, load_catalog, open_backends
from codehub.adapters.docker.builds import BuildLimits
from codehub.adapters.docker.container import DockerLimits
from codehub.adapters.docker.engine import Engine
from codehub.adapters.embedded.layout import write_private
from codehub.adapters.kubernetes.backends import KubernetesOptions
from codehub.adapters.kubernetes.homes import ClaimOptions
from codehub.adapters.kubernetes.manifests import PodOptions
from codehub.adapters.postgres import users
from codehub.adapters.postgres.facts import installation_id
from codehub.adapters.postgres.pool import Database
from codehub.adapters.process.cgroup import Limits
from codehub.adapters.process.launch_plan import ProcessOptions
from codehub.adapters.redis.activity import RedisActivity
from codehub.adapters.redis.bus import RedisBus
from codehub.adapters.redis.client import connect
from codehub.domain.profiles import Catalog
from codehub.settings import Settings

# Beside the data, so that `codehub down` finds this installation's resources without a database.
INSTALLATION_FILE = "installation-id"


def new_id() -> str:
    return str(uuid_utils.uuid7())


@dataclass(frozen=True, slots=True)
class World:
    """All open adapters of one process."""

    settings: Settings
    installation_id: str
    database: Database
    bus: RedisBus
    activity: RedisActivity
    catalog: Catalog
    backends: BackendSet


def backend_options(settings: Settings, installation: str) -> BackendOptions:
    return BackendOptions(
        data_dir=settings.data_dir,
        homes_dir=settings.homes,
        homes_host_dir=settings.homes_host_dir,
        archive_url=settings.archives,
        installation_id=installation,
        runtime=settings.runtime,
        storage=settings.storage,
        docker_host=settings.docker_host,
        sockets_dir=settings.sockets_dir,
        allowed_networks=settings.instance_networks,
        limits=DockerLimits(
            memory_bytes=settings.instance_memory, cpus=settings.instance_cpus, pids=settings.instance_pids
        ),
        builds=BuildLimits(settings.build_timeout_s, settings.build_size),
        kubernetes=kubernetes_options(settings) if settings.runtime == "kubernetes" else None,
        process=ProcessOptions(
            hidden=(settings.data_dir, settings.homes),
            limits=Limits(settings.instance_memory, settings.instance_cpus, settings.instance_pids),
            allowed_networks=settings.instance_networks,
            user_namespaces=settings.instance_user_namespaces,
            isolation=settings.isolation,
            isolated_before=isolated_before(settings),
        ),
    )


def isolated_before(settings: Settings) -> Path:
    """Return the file that exists once a workspace ran isolated here."""
    return settings.data_dir / "isolated"


def kubernetes_options(settings: Settings) -> KubernetesOptions:
    return KubernetesOptions(
        kubeconfig=settings.kubeconfig,
        context=settings.k8s_context,
        namespace=settings.k8s_namespace,
        image=settings.k8s_image,
        pods=PodOptions(
            cpu_limit=f"{settings.instance_cpus:g}",
            memory_limit=str(settings.instance_memory),
            cpu_request=settings.k8s_cpu_request,
            memory_request=settings.k8s_memory_request,
            ephemeral_storage=settings.k8s_ephemeral_storage,
            image_pull_secrets=settings.k8s_image_pull_secrets,
            runtime_class=settings.k8s_runtime_class,
            priority_class=settings.k8s_priority_class,
            node_selector=dict(pair.split("=", 1) for pair in settings.k8s_node_selector),
        ),
        claims=ClaimOptions(settings.k8s_storage_class, settings.k8s_home_size, settings.k8s_access_mode),
    )


def catalog_of(settings: Settings) -> Catalog:
    return load_catalog(
        settings.profiles_file, settings.default_profile, settings.allowed_images, settings.image_registry
    )


def refuse_remote_engine(settings: Settings) -> None:
    """Raise Terminal if workspaces are to run on a Docker engine of another machine. Every part refuses to start then."""
    if settings.runtime == "docker":
        Engine(settings.docker_host, "").check_local()


@contextlib.asynccontextmanager
async def open_world(settings: Settings, *, name: str, chooses: bool = False) -> AsyncIterator[World]:
    """Open everything a component needs.

    `chooses`: whether it decides where new workspaces run (that may pull an image).
    """
    refuse_remote_engine(settings)
    async with contextlib.AsyncExitStack() as stack:
        database = await stack.enter_async_context(Database(settings.database_url, name=f"codehub-{name}"))
        redis = connect(settings.redis_url)
        stack.push_async_callback(redis.aclose)
        installation = await installation_id(database, new_id())
        catalog = catalog_of(settings)
        options = backend_options(settings, installation)

        async def several_users() -> bool:
            async with database.transaction() as tx:
                return await users.count(tx) > 1

        async def owner_name(workspace_id: str) -> str:
            async with database.statement() as tx:
                return await users.owner_name(tx, workspace_id)

        backends = await open_backends(
            options if chooses else replace(options, runtime="process"), catalog, several_users, owner_name, name
        )
        stack.push_async_callback(backends.close)
        yield World(settings, installation, database, RedisBus(redis), RedisActivity(redis), catalog, backends)


@contextlib.asynccontextmanager
async def open_local_backends(settings: Settings) -> AsyncIterator[BackendSet]:
    """Open the backends without a database, by the installation's id that the last `up` stored."""
    options = backend_options(settings, stored_installation_id(settings))
    backends = await open_backends(
        # Pods belong to the cluster: a single machine neither searches for them nor stops them.
        replace(options, runtime="process", kubernetes=None),
        catalog_of(settings),
    )
    try:
        yield backends
    finally:
        await backends.close()


def stored_installation_id(settings: Settings) -> str:
    """Return this installation's id without a database; empty if it never ran on this machine."""
    path = settings.data_dir / INSTALLATION_FILE
    return path.read_text().strip() if path.exists() else ""


async def keep_installation_id(settings: Settings, database: Database) -> str:
    """Return this installation's id, created if necessary, and also store it in the data directory."""
    found = await installation_id(database, new_id())
    write_private(settings.data_dir / INSTALLATION_FILE, found + "\n")
    return found
