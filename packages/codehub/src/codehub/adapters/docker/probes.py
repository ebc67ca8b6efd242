"""Throw-away containers for `codehub doctor`, in the network of the real ones."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from pathlib import Path

from codehub.adapters.docker.container import DockerLimits, Plan
from codehub.adapters.docker.engine import Engine
from codehub.adapters.docker.images import find_image
from codehub.adapters.docker.instances import DockerInstances, DockerOptions, container_name
from codehub.adapters.docker.network import Network
from codehub.adapters.docker.start_dirs import HOME, IDE_SOCKET, INSIDE
from codehub.adapters.probe_workspaces import PROBE_FILE, PROBE_MEMORY_BYTES, PROBE_PIDS
from codehub.adapters.workspace_tools import PYTHON
from codehub.domain.errors import BackendDown, NotFound
from codehub.domain.profiles import AppProfile
from codehub.ports.fence import ignore_progress
from codehub.ports.instances import InstanceSpec, Mount, MountKind

_PROBE = Plan((PYTHON, "-I", "-S", "-B", f"{HOME}/{PROBE_FILE}", f"{INSIDE}/{IDE_SOCKET}"), False, False)


class DockerProbes:
    """`host` and `installation` are those of the real workspaces, `images` what they may run, the preferred one first.

    The probes belong to an installation of their own, named like their directory: no coordinator takes them for
    workspaces, and the next doctor finds those that a killed one left.
    """

    interface = "eth0"

    def __init__(
        self, base: Path, host: str, installation: str, options: DockerOptions, images: tuple[str, ...]
    ) -> None:
        self.memory_bytes = min(options.limits.memory_bytes, PROBE_MEMORY_BYTES)
        self.pids = min(options.limits.pids, PROBE_PIDS)
        limits = DockerLimits(self.memory_bytes, options.limits.cpus, self.pids, grace_s=0)
        self._images = images
        self._image = ""
        self._engine = Engine(host, base.name)
        self._real = Engine(host, installation)
        # Without an installation there is no network yet: the probes get one of their own, which is removed.
        self._owns_network = not installation
        self._network = _AsItIs(self._real if installation else self._engine, options.allowed_networks)
        options = replace(options, sockets_dir=base / "sockets", limits=limits)
        self._sockets = options.sockets_dir
        self.instances = DockerInstances(self._engine, options, network=self._network, plan=_PROBE)

    async def prepare(self) -> str:
        """Raises NotFound if no image is there: nothing is pulled for a diagnosis."""
        for image in self._images:
            if await find_image(self._engine, image) is not None:
                self._image = image
                break
        else:
            raise NotFound("no image of a workspace is on this machine yet: start a workspace first")
        await self.instances.tools.mounts(ignore_progress, ide=False)
        name = await self._network.ensure()
        shown = await self._engine.get(f"networks/{name}")
        return str(shown["IPAM"]["Config"][0]["Gateway"]).partition("/")[0]

    def spec(self, name: str, home: Path, env: dict[str, str]) -> InstanceSpec:
        profile = AppProfile(name="probe", image=self._image)
        return InstanceSpec(name, self._image, profile, Mount(MountKind.DIR, str(home)), env=env)

    async def address(self, name: str) -> str:
        shown = await self._engine.get(f"containers/{container_name(name)}/json")
        return str(shown["NetworkSettings"]["Networks"][self._network.name]["IPAddress"])

    def record(self, name: str) -> Path:
        return next(path for path in self._sockets.iterdir() if path.name.startswith(f"{name}."))

    async def dropped_metadata(self) -> int | None:
        return await self._network.filter.dropped_metadata() if self._network.can_guard else None

    async def close(self) -> None:
        if self._owns_network:
            with contextlib.suppress(BackendDown):  # then it was not created
                await self._network.remove()
        await self._engine.close()
        await self._real.close()


class _AsItIs(Network):
    """The network of the real workspaces. Rules that are missing stay missing, so that doctor finds that out."""

    async def ensure(self) -> str:
        if await self._engine.get(f"networks/{self.name}") is None:
            return await super().ensure()
        return self.name
