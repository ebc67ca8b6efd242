"""Containers of the tests' engine, for the contract of instances and for attacks from inside them."""

from __future__ import annotations

import asyncio
import uuid
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from codehub.adapters.docker.container import DockerLimits
from codehub.adapters.docker.engine import Engine
from codehub.adapters.docker.instances import DockerInstances, DockerOptions
from codehub.adapters.workspaced_client import WorkspacedClient
from codehub.domain.profiles import AppProfile
from codehub.ports.fence import no_fence
from codehub.ports.instances import InstanceSpec, Mount, MountKind
from testing.codehub.docker import TINY_IMAGE, DockerEngine


@dataclass(frozen=True)
class DockerWorld:
    base: Path
    engine: Engine
    instances: DockerInstances

    async def spec(self, workspace_id: str, variant: str = "a") -> InstanceSpec:
        home = self.base / workspace_id
        home.mkdir(parents=True, exist_ok=True)
        profile = AppProfile(
            name="tiny",
            image=TINY_IMAGE,
            health_path="/healthz",
            env=MappingProxyType({"VARIANT": variant, "T": "{secret}"}),
            secret_header="X-Secret: {secret}",
        )
        return InstanceSpec(workspace_id, TINY_IMAGE, profile, Mount(MountKind.DIR, str(home)))

    async def crash(self, workspace_id: str) -> None:
        await self.engine.send("POST", f"containers/codehub-ws-{workspace_id}/kill", params={"signal": "KILL"})

    async def ask(self, workspace_id: str, command: str) -> str:
        upstream = await self.instances.resolve_upstream(workspace_id)
        assert upstream is not None
        asked = WorkspacedClient().request(upstream, "POST", "/run", {}, command.encode())
        async with asyncio.timeout(120), asked as answer:
            return (await answer.read(1 << 30)).decode()


async def open_world(engine: DockerEngine, base: Path, networks: tuple[str, ...] = ()) -> DockerWorld:
    ours = Engine(engine.host, f"test-{uuid.uuid4()}")
    limits = DockerLimits(256 << 20, 1.0, 100, grace_s=2)
    options = DockerOptions(base / "sockets", limits, allowed_networks=networks)
    return DockerWorld(base, ours, DockerInstances(ours, options))


async def close_world(world: DockerWorld) -> None:
    for workspace_id in await world.instances.list_all():
        await world.instances.delete(workspace_id, no_fence)
    await world.instances.network.remove()
    await world.engine.close()
