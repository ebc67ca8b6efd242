"""Closes WebSockets and streams within seconds after their session has ended."""

from __future__ import annotations

import asyncio
from typing import Final

from codehub.domain.doors import Kind, read_key
from codehub.domain.errors import CodeHubError
from codehub.proxy.admission.controller import AdmissionController
from codehub.proxy.admission.decision import Credential
from codehub.proxy.server import ProxyServer
from codehub.services.workspace_access import WorkspaceAccess

EVERY_S: Final = 2.0


class Revocation:
    def __init__(self, server: ProxyServer, access: WorkspaceAccess, admission: AdmissionController) -> None:
        self._server = server
        self._access = access
        self._admission = admission

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            await asyncio.sleep(EVERY_S)
            try:
                await self.check()
            except CodeHubError:
                continue  # the database is down: open connections continue

    async def _kept_out(self, held: set[Credential]) -> set[Credential]:
        """Return guests of ports that are no longer shared with them."""
        at_ports = {}
        for credential in held:
            workspace_id, door = read_key(credential[0])
            if door.kind is Kind.PORT:
                at_ports[credential] = (workspace_id, door.port, credential[1])
        if not at_ports:
            return set()
        open_ = await self._access.may_still_open(list(set(at_ports.values())))
        return {credential for credential, opened in at_ports.items() if opened not in open_}

    async def check(self) -> None:
        """Check all open connections that are older than a decision, in one query."""
        before = self._server.clock.now - EVERY_S
        streams = [
            connection
            for connection in self._server.connections
            if connection.request is not None and connection.admission is not None and connection.started_at < before
        ]
        held = {tunnel.admission.credential for tunnel in self._server.tunnels}
        held |= {connection.admission.credential for connection in streams if connection.admission is not None}
        if not held:
            return
        live = await self._access.still_live({secret for _, secret in held})
        over = {credential for credential in held if credential[1] not in live}
        over |= await self._kept_out(held - over)
        if not over:
            return
        self._admission.revoked(over)
        for tunnel in [t for t in self._server.tunnels if t.admission.credential in over]:
            self._server.metrics.revoked += 1
            tunnel.abort()
        for connection in streams:
            if connection.admission is not None and connection.admission.credential in over:
                self._server.metrics.revoked += 1
                connection.revoke()
