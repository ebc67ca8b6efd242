"""Ends what must not go on: WebSockets and streams whose sign-in is over are closed within seconds."""

from __future__ import annotations

import asyncio
from typing import Final

from codehub.domain.errors import CodeHubError
from codehub.proxy.doorman import Doorman
from codehub.proxy.hub import Hub
from codehub.services.gate import Gate

EVERY_S: Final = 2.0


class Revocation:
    def __init__(self, hub: Hub, gate: Gate, doorman: Doorman) -> None:
        self._hub = hub
        self._gate = gate
        self._doorman = doorman

    async def run(self) -> None:
        """Ends by cancellation."""
        while True:
            await asyncio.sleep(EVERY_S)
            try:
                await self.check()
            except CodeHubError:
                continue  # nobody can be asked: those inside go on

    async def check(self) -> None:
        """One query for everything that is open and older than a decision."""
        before = self._hub.clock.now - EVERY_S
        streams = [
            connection
            for connection in self._hub.connections
            if connection.request is not None and connection.admission is not None and connection.started_at < before
        ]
        held = {tunnel.admission.credential for tunnel in self._hub.tunnels}
        held |= {connection.admission.credential for connection in streams if connection.admission is not None}
        if not held:
            return
        live = await self._gate.still_live({secret for _, secret in held})
        over = {credential for credential in held if credential[1] not in live}
        if not over:
            return
        self._doorman.revoked(over)
        for tunnel in [t for t in self._hub.tunnels if t.admission.credential in over]:
            self._hub.metrics.revoked += 1
            tunnel.abort()
        for connection in streams:
            if connection.admission is not None and connection.admission.credential in over:
                self._hub.metrics.revoked += 1
                connection.revoke()
