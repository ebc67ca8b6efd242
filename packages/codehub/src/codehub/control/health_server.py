"""The coordinator's HTTP server on COORDINATOR_HEALTH_BIND: /health/coordinator and /metrics, nothing else."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from codehub.control.heartbeat import Heartbeat
from codehub.control.metrics import Metrics
from codehub.ports.clock import Clock
from codehub.ports.leadership import Lease

_TIMEOUT_S: Final = 10.0
_LONGEST_LINE: Final = 8_192


@dataclass(slots=True)
class HealthState:
    """What this process knows about itself. Only the database knows about another leader."""

    node_id: str
    clock: Clock
    metrics: Metrics
    _began: float = field(init=False)
    _lease: Lease | None = None
    _since: datetime | None = None
    _heartbeats: list[Heartbeat] = field(default_factory=list)
    # Why this coordinator refuses to lead.
    refuses: str = ""
    _logged: str = ""

    def __post_init__(self) -> None:
        self._began = self.clock.monotonic()

    def leads(self, lease: Lease, heartbeats: list[Heartbeat]) -> None:
        self._lease, self._heartbeats, self._since = lease, heartbeats, self.clock.now()
        self._logged = ""

    def is_news(self, why: str) -> bool:
        """Return whether this reason for not leading was not logged yet. It is checked about once a second."""
        before, self._logged = self._logged, why
        return why != before

    def follows(self) -> None:
        self._lease, self._heartbeats, self._since = None, [], None

    def as_json(self) -> dict[str, object]:
        lease, since = self._lease, self._since
        leader = None
        if lease is not None and since is not None:
            leader = {"holder_id": lease.holder_id, "epoch": lease.epoch, "acquired_at": since.isoformat()}
        return {
            "is_leader": lease is not None,
            "node_id": self.node_id,
            "uptime_seconds": round(self.clock.monotonic() - self._began, 3),
            "leader": leader,
            "refuses_to_lead": self.refuses or None,
            # `last_error` is for admins, and nobody is signed in here
            "components": {
                heartbeat.name: {"last_tick_at": heartbeat.as_json()["last_tick_at"]}
                for heartbeat in self._heartbeats
            },
        }


@asynccontextmanager
async def health_server(bind: str, state: HealthState) -> AsyncIterator[None]:
    """Listen while the context is open. Without a bind address, do nothing."""
    if not bind:
        yield
        return
    host, _, port = bind.rpartition(":")

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                await _answer(reader, writer, state)
        except (TimeoutError, OSError, ValueError, asyncio.IncompleteReadError):
            pass  # ignore a peer that sends nothing or garbage
        finally:
            writer.close()

    server = await asyncio.start_server(serve, host.strip("[]"), int(port), limit=_LONGEST_LINE)
    async with server:
        yield


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, state: HealthState) -> None:
    words = (await reader.readline()).split()
    while (await reader.readline()).strip():
        pass
    method, target = [*words, b"", b""][:2]
    status, content_type, body = _page(method, target.split(b"?")[0], state)
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {len(body)}\r\n"
        "Cache-Control: no-store\r\nConnection: close\r\n\r\n"
    )
    writer.write(head.encode() + (b"" if method == b"HEAD" else body))
    await writer.drain()


def _page(method: bytes, path: bytes, state: HealthState) -> tuple[str, str, bytes]:
    if method not in (b"GET", b"HEAD"):
        return "405 Method Not Allowed", "text/plain", b"only GET\n"
    if path == b"/health/coordinator":
        return "200 OK", "application/json", json.dumps(state.as_json()).encode()
    if path == b"/metrics":
        return "200 OK", "text/plain; version=0.0.4; charset=utf-8", state.metrics.render()
    return "404 Not Found", "text/plain", b"/health/coordinator and /metrics are here\n"
