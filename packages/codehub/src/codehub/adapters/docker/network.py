"""The one network of an installation's containers: no traffic between them, and none to services of this machine.

Containers reach the world through the engine's masquerading. What they send to the machine itself (CodeHub, its
database, anything on the bridge's own address) is dropped by one packet-filter rule, when CodeHub may set it.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil

from codehub.adapters.docker.engine import Engine
from codehub.domain.errors import Transient


class Network:
    def __init__(self, engine: Engine) -> None:
        digest = hashlib.sha256(engine.installation_id.encode()).hexdigest()
        self._engine = engine
        self.name = f"codehub-{digest[:12]}"
        self.bridge = f"ch-{digest[:11]}"
        self._lock = asyncio.Lock()
        self._ready = False

    @property
    def can_guard(self) -> bool:
        """Whether the machine's own services can be closed to containers from here. `doctor` says so when not."""
        return self._engine.is_local and os.geteuid() == 0 and _iptables() is not None

    async def ensure(self) -> str:
        async with self._lock:
            if not self._ready or await self._engine.get(f"networks/{self.name}") is None:
                await self._make()
                await self._guard()
                self._ready = True
        return self.name

    async def _make(self) -> None:
        found = await self._engine.get(f"networks/{self.name}")
        if found is not None:
            self._engine.check_ours(found.get("Labels"), self.name)
            return
        config = {
            "Name": self.name,
            "Driver": "bridge",
            "Labels": self._engine.labels("", "network"),
            "Options": {
                "com.docker.network.bridge.enable_icc": "false",
                "com.docker.network.bridge.name": self.bridge,
                "com.docker.network.bridge.host_binding_ipv4": "127.0.0.1",
            },
        }
        try:
            await self._engine.send("POST", "networks/create", config)
        except Transient:
            # Another process of this installation may have been faster.
            if await self._engine.get(f"networks/{self.name}") is None:
                raise

    async def _guard(self) -> None:
        if not self.can_guard:
            return
        program = _iptables() or ""
        rule = ["INPUT", "-i", self.bridge, "-m", "conntrack", "--ctstate", "NEW", "-j", "DROP"]
        if await _run(program, "-w", "10", "-C", *rule) != 0 and await _run(program, "-w", "10", "-I", *rule) != 0:
            raise Transient("the packet filter that keeps workspaces from this machine's services could not be set")

    async def remove(self) -> None:
        """For tests and for taking an installation off an engine."""
        await self._engine.remove(f"networks/{self.name}")
        if self.can_guard:
            rule = ["INPUT", "-i", self.bridge, "-m", "conntrack", "--ctstate", "NEW", "-j", "DROP"]
            await _run(_iptables() or "", "-w", "10", "-D", *rule)


def _iptables() -> str | None:
    return shutil.which("iptables", path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")


async def _run(*command: str) -> int:
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL
    )
    return await process.wait()
