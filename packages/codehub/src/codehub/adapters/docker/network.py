"""The network of an installation's containers: no traffic between them, with this machine or to private networks.

Containers reach the internet through the engine's masquerading. If CodeHub may set packet filter rules, they drop traffic
from containers to the machine itself (CodeHub, its database, anything on the bridge's address), to link-local addresses
(cloud metadata) and to private networks that are not allowed, and traffic from the machine to containers.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
from collections.abc import Sequence

from codehub.adapters.docker.engine import Engine
from codehub.domain.errors import Transient
from codehub.domain.networks import blocked_networks

_FORWARDED = "DOCKER-USER"  # the engine's chain for user-defined rules, which it does not modify
_FAILED = "the packet filter that keeps workspaces from this machine's services could not be set"


class Network:
    def __init__(self, engine: Engine, allowed: Sequence[str] = ()) -> None:
        digest = hashlib.sha256(engine.installation_id.encode()).hexdigest()
        self._engine = engine
        self._allowed = tuple(allowed)
        self.name = f"codehub-{digest[:12]}"
        self.bridge = f"ch-{digest[:11]}"
        self.chain = f"CODEHUB-{digest[:12]}"
        self._lock = asyncio.Lock()
        self._ready = False

    @property
    def can_guard(self) -> bool:
        """Return whether containers can be blocked from the machine's own services. If not, `doctor` reports it."""
        return self._engine.is_local and os.geteuid() == 0 and _iptables() is not None

    async def ensure(self) -> str:
        async with self._lock:
            if not self._ready or await self._engine.get(f"networks/{self.name}") is None:
                await self._make()
                if self.can_guard:
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
            # Another process of this installation may have created it first.
            if await self._engine.get(f"networks/{self.name}") is None:
                raise

    @property
    def _jumps(self) -> list[list[str]]:
        """The rules that jump from the packet filter's chains to this installation's chain."""
        dropped = ["-m", "conntrack", "--ctstate", "NEW", "-j", "DROP"]
        return [
            ["INPUT", "-i", self.bridge, *dropped],
            # Users of this machine cannot reach listeners in a container either: CodeHub connects through its sockets.
            ["OUTPUT", "-o", self.bridge, *dropped],
            [_FORWARDED, "-i", self.bridge, "-j", self.chain],
        ]

    async def _guard(self) -> None:
        await _iptables_run("-N", self.chain)  # fails if the chain exists
        if await _iptables_run("-F", self.chain) != 0:
            raise Transient(_FAILED)
        for network in blocked_networks((), self._allowed):
            rule = [self.chain, "-d", network, "-m", "conntrack", "--ctstate", "NEW", "-j", "DROP"]
            if await _iptables_run("-A", *rule) != 0:
                raise Transient(_FAILED)
        for jump in self._jumps:
            if await _iptables_run("-C", *jump) != 0 and await _iptables_run("-I", *jump) != 0:
                raise Transient(_FAILED)

    async def remove(self) -> None:
        """Remove the network and its rules, in tests or when an installation is removed from an engine."""
        await self._engine.remove(f"networks/{self.name}")
        if self.can_guard:
            for jump in self._jumps:
                await _iptables_run("-D", *jump)
            await _iptables_run("-F", self.chain)
            await _iptables_run("-X", self.chain)


def _iptables() -> str | None:
    return shutil.which("iptables", path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")


async def _iptables_run(*words: str) -> int:
    process = await asyncio.create_subprocess_exec(
        _iptables() or "iptables",
        "-w",
        "10",
        *words,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    return await process.wait()
