"""State shared by all connections of one proxy: the clock, the admitter, the open connections, and shutdown.

A server listens, sweeps deadlines, and shuts down gracefully: stop accepting, let requests finish, close WebSockets with
1001.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Coroutine
from ipaddress import IPv4Network, IPv6Network, ip_address
from typing import Any, Final, Protocol

import structlog

from codehub.domain.connection_cap import MOST_PER_ADDRESS, UNIX_PEER, ConnectionCap
from codehub.proxy.admission.decision import Admission, Admitter, Reply
from codehub.proxy.coarse_clock import CoarseClock
from codehub.proxy.connections.client import ClientConnection
from codehub.proxy.connections.exchange import Exchange
from codehub.proxy.connections.keepalive import enable_keepalive
from codehub.proxy.connections.splice import Pipes
from codehub.proxy.connections.tunnel import Tunnel
from codehub.proxy.http1.header_cache import HeaderCache
from codehub.proxy.http1.headers import WORKSPACE_COOKIE
from codehub.proxy.http1.messages import RequestHead
from codehub.proxy.metrics import Metrics

_log = structlog.get_logger()

TICK_S: Final = 0.25
BACKLOG: Final = 1024
SETTLE_S: Final = 0.1
_UNIX_PEER: Final = UNIX_PEER.encode()

Network = IPv4Network | IPv6Network


class LocalAnswers(Protocol):
    """Answers that need no workspace, and the answer for an unreachable workspace."""

    def local(self, request: RequestHead, peer: bytes) -> Reply | None: ...

    def away(self, request: RequestHead, admission: Admission) -> Reply: ...


class ProxyServer:
    """One proxy. `run` ends by cancellation, after a graceful shutdown of at most `grace_s`."""

    def __init__(
        self,
        admitter: Admitter,
        door: LocalAnswers,
        clock: CoarseClock,
        *,
        workspace_cookie: bytes = WORKSPACE_COOKIE,
        trusted: tuple[Network, ...] = (),
        grace_s: float = 10.0,
        most_per_address: int = MOST_PER_ADDRESS,
    ) -> None:
        self.admitter = admitter
        self.local = door.local
        self.away = door.away
        self.clock = clock
        self.workspace_cookie = workspace_cookie
        self.metrics = Metrics()
        self.header_cache = HeaderCache(clock)
        self.connections: set[Exchange] = set()
        self.tunnels: set[Tunnel] = set()
        self.pipes = Pipes()
        self.draining = False
        self.loop: asyncio.AbstractEventLoop
        self.on_tick: list[Callable[[], None]] = [self.header_cache.sweep]
        self.on_stop: list[Callable[[], None]] = []
        self._trusted = trusted
        self._cap = ConnectionCap(most_per_address, trusted)
        self._grace_s = grace_s
        self._tasks: set[asyncio.Task[None]] = set()

    def join(self, connection: Exchange) -> bool:
        """Count a new connection. Returns False if its address has too many; the connection is then not tracked."""
        if not self._cap.admit(connection.peer.decode()):
            return False
        self.connections.add(connection)
        return True

    def leave(self, connection: Exchange) -> None:
        """Stop tracking a connection that ended. May be called again."""
        if connection in self.connections:
            self.connections.remove(connection)
            self._cap.release(connection.peer.decode())

    def leave_tunnel(self, tunnel: Tunnel) -> None:
        """Stop tracking a tunnel that ended. Its browser connection counted until now. May be called again."""
        if tunnel in self.tunnels:
            self.tunnels.remove(tunnel)
            self._cap.release(tunnel.peer.decode())

    def forwarded_for(self, request: RequestHead, peer: bytes) -> bytes:
        """Return the X-Forwarded-For value. Only a trusted proxy may add to the chain."""
        if peer == _UNIX_PEER:
            return request.fields.forwarded_for or b"unknown"
        if not self._trusted or not request.fields.forwarded_for:
            return peer
        address = ip_address(peer.decode())
        if any(address in network for network in self._trusted):
            return request.fields.forwarded_for + b", " + peer
        return peer

    def start(self, work: Coroutine[Any, Any, None], connection: Exchange) -> asyncio.Task[None]:
        task = self.loop.create_task(self._watched(work, connection))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _watched(self, work: Coroutine[Any, Any, None], connection: Exchange) -> None:
        try:
            await work
        except Exception:  # noqa: BLE001 - the last resort of a connection's task: a failure affects only one request
            _log.exception("a request failed in the proxy")
            connection.failed()

    async def run(self, sockets: list[socket.socket], ready: Callable[[], None] = lambda: None) -> None:
        self.loop = asyncio.get_running_loop()
        self.clock.tick()
        servers = [await self._listen(sock) for sock in sockets]
        ready()
        try:
            while True:
                await asyncio.sleep(TICK_S)
                self._tick()
        finally:
            await asyncio.shield(self._shut_down(servers))

    async def _listen(self, sock: socket.socket) -> asyncio.Server:
        if sock.family == socket.AF_UNIX:
            return await self.loop.create_unix_server(lambda: ClientConnection(self), sock=sock, backlog=BACKLOG)
        enable_keepalive(sock)
        return await self.loop.create_server(lambda: ClientConnection(self), sock=sock, backlog=BACKLOG)

    def _tick(self) -> None:
        self.clock.tick()
        now = self.clock.now
        for connection in [c for c in self.connections if c.deadline < now]:
            connection.expire()
        for tunnel in [t for t in self.tunnels if t.deadline < now]:
            tunnel.expire()
        for action in self.on_tick:
            action()

    async def _shut_down(self, servers: list[asyncio.Server]) -> None:
        self.draining = True
        for server in servers:
            server.close()
        for connection in list(self.connections):
            connection.leave_when_done()
        # Connections accepted in this iteration of the event loop are registered in the next ones.
        await asyncio.sleep(SETTLE_S)
        deadline = self.loop.time() + self._grace_s
        while self.loop.time() < deadline and any(c.request is not None or c.fresh for c in self.connections):
            await asyncio.sleep(0.02)
            self._tick()
        while self.tunnels and self.loop.time() < deadline + 1:
            for tunnel in list(self.tunnels):
                tunnel.go_away()
            await asyncio.sleep(0.02)
            self._tick()
        for rest in [*self.tunnels]:
            rest.abort()
        for task in list(self._tasks):
            task.cancel()
        for connection in list(self.connections):
            connection.transport.abort()
        for action in self.on_stop:
            action()
        # Closed transports notify their protocols in the next iterations of the event loop.
        for _ in range(3):
            await asyncio.sleep(0)
        self.pipes.close()
