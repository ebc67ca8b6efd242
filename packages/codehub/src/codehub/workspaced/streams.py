"""Byte streams: a connection to a port of this workspace, relayed in both directions with half-close and back-pressure."""

from __future__ import annotations

import asyncio
import socket

from . import netports
from .errors import RequestError, invalid
from .http1 import Connection, Request, Response, response_head

PROTOCOL = "codehub-stream"
_READ = 256 << 10
_CONNECT_TIMEOUT_S = 10.0


def port_of(text: str) -> int:
    if not text.isdigit() or len(text) > 5 or not 1 <= int(text) <= 65535:
        raise invalid(f"{text!r} is not a port; ports are 1 to 65535")
    return int(text)


async def connect(port: int) -> socket.socket:
    """Connect to the listener of a port on any loopback address of this workspace."""
    loop = asyncio.get_running_loop()
    tried: list[str] = netports.addresses(port) or ["127.0.0.1", "::1"]
    for address in tried:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        try:
            sock = socket.socket(family, socket.SOCK_STREAM)
        except OSError:
            continue
        sock.setblocking(False)
        try:
            await asyncio.wait_for(loop.sock_connect(sock, (address, port)), _CONNECT_TIMEOUT_S)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return sock
        except (OSError, asyncio.TimeoutError):
            sock.close()
        except BaseException:
            sock.close()
            raise
    raise RequestError(502, "PORT_CLOSED", f"nothing listens on port {port} of this workspace")


async def switch(connection: Connection) -> None:
    """Send the response after which the connection carries raw bytes."""
    headers = {"Upgrade": PROTOCOL, "Connection": "Upgrade"}
    await connection.write(response_head(Response(101, headers, b""), keep_alive=True))


def check_upgrade(request: Request) -> None:
    if not request.upgrades_to(PROTOCOL):
        raise RequestError(400, "INVALID_REQUEST", f"this needs `Upgrade: {PROTOCOL}`")


async def relay(connection: Connection, other: socket.socket) -> None:
    """Relay until both sides have closed, or one has failed. Closes `other`."""
    loop = asyncio.get_running_loop()
    finished: asyncio.Future[None] = loop.create_future()
    up = _Direction(loop, connection.sock, other, finished)
    down = _Direction(loop, other, connection.sock, finished)
    up.opposite, down.opposite = down, up
    try:
        down.start(b"")
        up.start(connection.read_ahead)
        await finished
    finally:
        for sock in (connection.sock, other):
            loop.remove_reader(sock)
            loop.remove_writer(sock)
        other.close()


class _Direction:
    """Moves bytes from one socket to the other. Reads again only when everything was sent.

    Callbacks instead of coroutines: a small request takes half the time.
    """

    __slots__ = ("_finished", "_loop", "_rest", "_source", "_target", "ended", "opposite")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        source: socket.socket,
        target: socket.socket,
        finished: asyncio.Future[None],
    ) -> None:
        self._loop = loop
        self._source = source
        self._target = target
        self._finished = finished
        self._rest = b""  # received, and not yet sent
        self.ended = False
        self.opposite: _Direction

    def start(self, first: bytes) -> None:
        self._loop.add_reader(self._source, self._readable)
        if first:
            self._send(first)

    def _readable(self) -> None:
        try:
            data = self._source.recv(_READ)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            self._finish()
            return
        if data:
            self._send(data)
            return
        self._loop.remove_reader(self._source)
        self.ended = True
        try:
            self._target.shutdown(socket.SHUT_WR)
        except OSError:
            self._finish()
        if self.opposite.ended:
            self._finish()

    def _send(self, data: bytes) -> None:
        self._rest = self._unsent(data)
        if self._rest:
            self._loop.remove_reader(self._source)
            self._loop.add_writer(self._target, self._writable)

    def _writable(self) -> None:
        self._rest = self._unsent(self._rest)
        if not self._rest and not self._finished.done():
            self._loop.remove_writer(self._target)
            self._loop.add_reader(self._source, self._readable)

    def _unsent(self, data: bytes) -> bytes:
        try:
            return data[self._target.send(data) :]
        except (BlockingIOError, InterruptedError):
            return data
        except OSError:
            self._finish()
            return b""

    def _finish(self) -> None:
        if not self._finished.done():
            self._finished.set_result(None)
