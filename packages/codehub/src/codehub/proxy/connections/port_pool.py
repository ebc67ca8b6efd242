"""Connections to a port inside a workspace through its `workspaced`: opened as a byte stream, then used for HTTP."""

from __future__ import annotations

import asyncio
import socket
from typing import Final

from codehub.adapters.workspace_socket import open_workspace_socket
from codehub.ports.instances import Upstream
from codehub.proxy.connections.upstream import CONNECT_TIMEOUT_S, UpstreamConnection, UpstreamPool

_LONGEST_HEAD: Final = 4096


class PortPool(UpstreamPool):
    """`upstream` is the address of `workspaced`."""

    def __init__(self, upstream: Upstream, port: int, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(upstream, loop)
        self._port = port

    async def connect(self) -> UpstreamConnection:
        """Raises ConnectionRefusedError if nothing listens on the port, and OSError if the helper does not answer."""
        upstream = self.upstream
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            if upstream.socket_path:
                connected = await open_workspace_socket(upstream.socket_path, upstream.uid)
            else:
                connected = await self._by_tcp(upstream)
            try:
                await self._open(connected)
            except BaseException:
                connected.close()
                raise
        create = self.loop.create_unix_connection if upstream.socket_path else self.loop.create_connection
        _, protocol = await create(lambda: UpstreamConnection(self), sock=connected)
        return protocol

    async def _by_tcp(self, upstream: Upstream) -> socket.socket:
        connected = socket.socket(socket.AF_INET6 if ":" in upstream.host else socket.AF_INET, socket.SOCK_STREAM)
        connected.setblocking(False)
        try:
            await self.loop.sock_connect(connected, (upstream.host, upstream.port))
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except BaseException:
            connected.close()
            raise
        return connected

    async def _open(self, connected: socket.socket) -> None:
        assert self.upstream.secret is not None
        name, value = self.upstream.secret
        await self.loop.sock_sendall(
            connected,
            f"GET /tcp/{self._port} HTTP/1.1\r\nHost: workspaced\r\n{name}: {value}\r\n"
            "Connection: Upgrade\r\nUpgrade: codehub-stream\r\n\r\n".encode(),
        )
        head = b""
        while b"\r\n\r\n" not in head:
            data = await self.loop.sock_recv(connected, _LONGEST_HEAD)
            if not data or len(head) > _LONGEST_HEAD:
                raise ConnectionResetError("workspaced closed the connection")
            head += data
        # A server that sends data first does not speak HTTP.
        if not head.startswith(b"HTTP/1.1 101 ") or not head.endswith(b"\r\n\r\n"):
            raise ConnectionRefusedError(f"nothing listens on port {self._port}")
