"""The network of an installation's containers: no traffic between them, with this machine or to private networks.

Containers reach the internet through the engine's masquerading. If CodeHub may set packet filter rules, they drop traffic
from containers to the machine itself (CodeHub, its database, anything on the bridge's address), to link-local addresses
(cloud metadata) and to private networks that are not allowed, and traffic from the machine to containers.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import Sequence

from codehub.adapters.docker.engine import Engine
from codehub.adapters.docker.packet_filter import PacketFilter, find_iptables
from codehub.domain.errors import Transient


class Network:
    def __init__(self, engine: Engine, allowed: Sequence[str] = ()) -> None:
        digest = hashlib.sha256(engine.installation_id.encode()).hexdigest()
        self._engine = engine
        self.name = f"codehub-{digest[:12]}"
        self.filter = PacketFilter(digest, allowed)
        self._lock = asyncio.Lock()
        self._ready = False

    @property
    def can_guard(self) -> bool:
        """Return whether containers can be blocked from the machine's own services. If not, `doctor` reports it."""
        return self._engine.is_local and os.geteuid() == 0 and find_iptables() is not None

    async def ensure(self) -> str:
        """Create the network and set its rules if they are missing. Returns its name."""
        async with self._lock:
            exists = self._ready and await self._engine.get(f"networks/{self.name}") is not None
            if not exists:
                await self._make()
            # Rules are checked at every start, because a firewall that is reloaded flushes those of others.
            if self.can_guard and not (exists and await self.filter.is_set()):
                await self.filter.set()
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
                "com.docker.network.bridge.name": self.filter.bridge,
                "com.docker.network.bridge.host_binding_ipv4": "127.0.0.1",
            },
        }
        try:
            await self._engine.send("POST", "networks/create", config)
        except Transient:
            # Another process of this installation may have created it first.
            if await self._engine.get(f"networks/{self.name}") is None:
                raise

    async def remove(self) -> None:
        """Remove the network and its rules, in tests or when an installation is removed from an engine."""
        await self._engine.remove(f"networks/{self.name}")
        if self.can_guard:
            await self.filter.remove()
