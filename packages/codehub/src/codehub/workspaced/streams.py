"""Byte streams: a connection to a port of this workspace, relayed in both directions with half-close and back-pressure."""

from __future__ import annotations

import asyncio
import socket

from . import netports
from .errors import RequestError, invalid
from .http1 import Connection, Request, Response, response_head
from .relay import Relay

PROTOCOL = "codehub-stream"
_CONNECT_TIMEOUT_S = 10.0


def port_of(text: str) -> int:
    if not (text.isascii() and text.isdigit()) or len(text) > 5 or not 1 <= int(text) <= 65535:
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

    def ended() -> None:
        if not finished.done():
            finished.set_result(None)

    both = Relay(loop, connection.sock, other, ended)
    try:
        both.start(connection.read_ahead)
        await finished
    finally:
        both.stop()
        other.close()
