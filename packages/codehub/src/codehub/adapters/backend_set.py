"""Which backends this installation has, by the names in workspaces' rows, and which one new workspaces use.

Composes the adapters in this folder. Knows nothing of settings, services or the database.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from codehub.adapters.base_python import base_python
from codehub.adapters.docker.builds import BuildLimits, DockerImageBuilder
from codehub.adapters.docker.container import DockerLimits
from codehub.adapters.docker.engine import Engine
from codehub.adapters.docker.images import ensure_image
from codehub.adapters.docker.instances import DockerInstances, DockerOptions, HomesSeen
from codehub.adapters.embedded.layout import write_private
from codehub.adapters.homes.docker_volume import DockerVolumeHomes
from codehub.adapters.homes.local_dir import LocalDirHomes
from codehub.adapters.homes.mark import HomesMark
from codehub.adapters.homes.work import Workers
from codehub.adapters.ide.code_server import CodeServerInstall
from codehub.adapters.ide.jupyterlab import JupyterLabInstall
from codehub.adapters.ide.toolchain import Toolchain
from codehub.adapters.kubernetes.backends import KubernetesBackends, KubernetesOptions, open_kubernetes
from codehub.adapters.kubernetes.homes import PvcHomes
from codehub.adapters.kubernetes.instances import KubernetesInstances
from codehub.adapters.objectstore.archives import ArchiveStoreId, ObjectArchives
from codehub.adapters.objectstore.store import Store, StoreOptions
from codehub.adapters.process.instances import ProcessInstances
from codehub.adapters.process.launch_plan import ProcessOptions, Tools
from codehub.adapters.profiles_file import load_profiles
from codehub.domain.errors import BackendDown, CodeHubError, Invalid
from codehub.domain.profiles import Catalog
from codehub.ports.archives import Archives
from codehub.ports.fence import ignore_progress
from codehub.ports.homes import Homes
from codehub.ports.image_builds import ImageBuilder
from codehub.ports.instances import Instances
from codehub.ports.stores import IdentifiedStore

# Names the backend that CODEHUB_RUNTIME=auto chose. Removing the file makes it choose again.
_CHOSEN_RUNTIME = "runtime"
_AUTO_TIMEOUT_S = 120.0  # for the image pull that decides where new workspaces run


# Names of the instance backends, by the setting that selects them. `auto` selects one of the first two.
INSTANCE_BACKENDS = {
    "process": ProcessInstances.name,
    "docker": DockerInstances.name,
    "kubernetes": KubernetesInstances.name,
}


@dataclass(frozen=True, slots=True)
class BackendOptions:
    """Everything that the backends need to know."""

    data_dir: Path
    homes_dir: Path
    archive_url: str
    installation_id: str
    runtime: str = "auto"  # auto, process, docker or kubernetes: for new workspaces only
    storage: str = "local-dir"
    homes_host_dir: Path | None = None
    docker_host: str = ""
    sockets_dir: Path | None = None  # None: `run/containers` in the data directory
    allowed_networks: tuple[str, ...] = ()
    limits: DockerLimits = field(default_factory=DockerLimits)
    builds: BuildLimits = field(default_factory=BuildLimits)
    store: StoreOptions = field(default_factory=StoreOptions)
    process: ProcessOptions | None = None
    kubernetes: KubernetesOptions | None = None  # None: no cluster is used


@dataclass(frozen=True, slots=True)
class BackendSet:
    """All backends.

    `instances` and `homes` are keyed by backend name; a workspace whose backend is missing is Unknown, not lost.
    """

    instances: Mapping[str, Instances]
    homes: Mapping[str, Homes]
    archives: Archives
    instance_backend: str
    storage_backend: str
    isolates_users: Callable[[], bool]
    engine: Engine
    store: Store
    workers: Workers
    images: ImageBuilder
    # Stores with an id by which a coordinator recognizes them as this installation's.
    stores: Sequence[IdentifiedStore] = ()
    kubernetes: KubernetesBackends | None = None
    # Called by the coordinator, because only it knows how it isolates processes. Blocking.
    record_isolation: Callable[[], None] = lambda: None

    async def close(self) -> None:
        if self.kubernetes is not None:
            await self.kubernetes.cluster.close()
        await self.engine.close()
        await asyncio.to_thread(self.workers.close)
        self.store.close()


def load_catalog(
    profiles_file: Path | None, default: str, allowed_images: tuple[str, ...], registry: str = ""
) -> Catalog:
    return Catalog(load_profiles(profiles_file, registry), default, allowed_images)


async def _one_user() -> bool:
    return False


async def open_backends(
    options: BackendOptions,
    catalog: Catalog,
    several_users: Callable[[], Awaitable[bool]] = _one_user,
    owner_name: Callable[[str], Awaitable[str]] | None = None,
    part: str = "",
) -> BackendSet:
    """Open all backends and choose one for new workspaces.

    Processes are always available; an engine may become available later. `part` is the process of CodeHub whose rights in a
    cluster are checked.
    """
    if options.runtime == "kubernetes" and options.kubernetes is None:
        raise Invalid("CODEHUB_RUNTIME=kubernetes needs a cluster: set KUBECONFIG, or run CodeHub in one")
    engine = Engine(options.docker_host, options.installation_id)
    if options.runtime == "docker":
        engine.check_local()
    store = await asyncio.to_thread(Store, options.archive_url, options.store)
    workers = Workers()
    ide_dir = options.data_dir / "ide"
    toolchain = Toolchain(ide_dir)
    process = ProcessInstances(
        options.data_dir / "run" / "instances",
        options.process or ProcessOptions(hidden=(options.data_dir, options.homes_dir)),
        {"code-server": CodeServerInstall(ide_dir).ensure, "jupyter-lab": JupyterLabInstall(ide_dir).ensure},
        several_users,
        lambda: Tools(base_python(), toolchain.ensure_pip(), toolchain.node()),
        owner_name,
    )
    seen = HomesSeen(options.homes_dir, options.homes_host_dir) if options.homes_host_dir else HomesSeen()
    sockets = options.sockets_dir or options.data_dir / "run" / "containers"
    docker = DockerInstances(
        engine,
        DockerOptions(sockets, options.limits, seen, options.allowed_networks),
        CodeServerInstall(ide_dir).ensure,
        owner_name=owner_name,
    )
    chosen = await _choose(options, engine, catalog)
    storage = _storage(chosen, options.storage)
    mark = homes_mark(options.homes_dir, chosen, options.storage)
    local = LocalDirHomes(options.homes_dir, store, host_root=options.homes_host_dir, workers=workers, mark=mark)
    with contextlib.suppress(BackendDown):  # homes are Unknown until their disk is mounted; everything else works
        await local.ping()  # creates the directory
    volumes = DockerVolumeHomes(engine, store, workers=workers)
    instances: dict[str, Instances] = {process.name: process, docker.name: docker}
    homes: dict[str, Homes] = {local.name: local, volumes.name: volumes}
    kubernetes = None
    if options.kubernetes is not None:
        kubernetes = open_kubernetes(options.kubernetes, options.installation_id, store, workers, owner_name)
        instances[kubernetes.instances.name] = kubernetes.instances
        homes[kubernetes.homes.name] = kubernetes.homes
        await kubernetes.report_unusable(part)
    return BackendSet(
        instances=instances,
        homes=homes,
        archives=ObjectArchives(store),
        instance_backend=chosen,
        storage_backend=storage,
        isolates_users=lambda: chosen != process.name or process.isolates_users,
        engine=engine,
        store=store,
        workers=workers,
        images=DockerImageBuilder(engine, docker.network, options.limits, options.builds),
        stores=(mark, ArchiveStoreId(store)),
        kubernetes=kubernetes,
        record_isolation=process.record_isolation,
    )


async def choose_runtime(options: BackendOptions, catalog: Catalog) -> str:
    """Return `process`, `docker` or `kubernetes`: the result of CODEHUB_RUNTIME on this machine.

    May pull the default image.
    """
    engine = Engine(options.docker_host, options.installation_id)
    try:
        chosen = await _choose(options, engine, catalog)
    finally:
        await engine.close()
    return {DockerInstances.name: "docker"}.get(chosen, chosen)


def _storage(chosen: str, configured: str) -> str:
    """Return a storage backend that the instance backend can mount.

    A process cannot use an engine's volume, and only pods use claims.
    """
    if chosen == KubernetesInstances.name:
        return PvcHomes.name
    if configured == PvcHomes.name:
        raise Invalid("CODEHUB_STORAGE=pvc is for CODEHUB_RUNTIME=kubernetes; use local-dir or docker-volume")
    return configured if chosen == DockerInstances.name else LocalDirHomes.name


def homes_mark(homes_dir: Path, instance_backend: str, configured: str) -> HomesMark:
    return HomesMark(homes_dir, takes_new=_storage(instance_backend, configured) == LocalDirHomes.name)


async def _choose(options: BackendOptions, engine: Engine, catalog: Catalog) -> str:
    """Resolve `auto`: docker if an engine answers and the default profile's image exists or can be pulled.

    Once docker was chosen, it stays: an unavailable engine must not silently turn containers into processes.
    """
    if options.runtime in INSTANCE_BACKENDS:
        return INSTANCE_BACKENDS[options.runtime]
    chosen = options.data_dir / _CHOSEN_RUNTIME
    if chosen.exists():
        return chosen.read_text().strip()
    try:
        engine.check_local()
        await engine.ping()
        image = catalog.profiles[catalog.default].image
        if not image:
            return ProcessInstances.name
        async with asyncio.timeout(_AUTO_TIMEOUT_S):
            await ensure_image(engine, image, ignore_progress)
    except (BackendDown, CodeHubError, TimeoutError):
        return ProcessInstances.name
    with contextlib.suppress(OSError):  # a read-only data directory: choose again at the next start
        write_private(chosen, DockerInstances.name + "\n")
    return DockerInstances.name
