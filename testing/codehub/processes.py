"""Process workspaces in a test's directory, and commands in them."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import httpx

from codehub.adapters.process.instances import ProcessInstances
from codehub.adapters.process.launch_plan import ProcessOptions
from codehub.adapters.process.records import Record, read_record
from codehub.adapters.process.supervisor import descendants
from codehub.ports.fence import no_fence
from codehub.ports.instances import InstanceSpec, Mount, MountKind
from testing.codehub.tiny_ide import by_port, by_socket


@dataclass(frozen=True)
class ProcessWorld:
    base: Path
    instances: ProcessInstances
    socket: bool = True

    async def spec(self, workspace_id: str, variant: str = "a") -> InstanceSpec:
        home = self.base / "homes" / workspace_id / "files"
        home.mkdir(parents=True, exist_ok=True)
        profile = by_socket(variant) if self.socket else by_port(variant)
        return InstanceSpec(workspace_id, "tiny", profile, Mount(MountKind.DIR, str(home)))

    def record(self, workspace_id: str) -> Record:
        found = read_record(self.base / "run" / workspace_id)
        assert found is not None
        return found

    def tree(self, workspace_id: str) -> list[int]:
        return [pid for pid, name in descendants(self.record(workspace_id).pid) if name != "bwrap"]

    async def crash(self, workspace_id: str) -> None:
        for pid in self.tree(workspace_id):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    async def ask(self, workspace_id: str, command: str) -> str:
        """Run a command as the workspace would."""
        upstream = await self.instances.resolve_upstream(workspace_id)
        assert upstream is not None
        transport = httpx.AsyncHTTPTransport(uds=upstream.socket_path) if upstream.socket_path else None
        async with httpx.AsyncClient(transport=transport, timeout=60, trust_env=False) as client:
            port = f":{upstream.port}" if upstream.port else ""
            return (await client.post(f"http://127.0.0.1{port}/run", content=command)).text


def make_world(base: Path, *, bwrap: bool, socket: bool = True) -> ProcessWorld:
    options = ProcessOptions(grace_s=5, hidden=(base,), use_bubblewrap=bwrap, log_bytes=200_000)
    return ProcessWorld(base, ProcessInstances(base / "run", options), socket)


@contextlib.asynccontextmanager
async def ended(world: ProcessWorld) -> AsyncIterator[ProcessWorld]:
    try:
        yield world
    finally:
        for workspace_id in await world.instances.list_all():
            await world.instances.delete(workspace_id, no_fence)
