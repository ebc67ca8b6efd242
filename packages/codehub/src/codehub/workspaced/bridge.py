"""Forwards a Unix socket to an IDE that can listen only on a port of the workspace's loopback.

Runs as a separate process, so that the IDE's connections survive when `workspaced` dies.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket

from .errors import RequestError
from .http1 import Connection
from .listening import listen
from .streams import connect, relay

_MOST_CONNECTIONS = 4096


def run(where: object) -> None:
    """Run the bridge. `where` is [socket, port]."""
    assert isinstance(where, list)
    asyncio.run(serve(listen(f"unix:{where[0]}"), int(where[1])))


async def serve(listener: socket.socket, port: int) -> None:
    loop = asyncio.get_running_loop()
    listener.setblocking(False)
    tasks: set[asyncio.Task[None]] = set()
    while True:
        try:
            client, _ = await loop.sock_accept(listener)
        except OSError:
            await asyncio.sleep(0.05)  # no descriptors left; open connections continue
            continue
        if len(tasks) >= _MOST_CONNECTIONS:
            client.close()
            continue
        client.setblocking(False)
        task = loop.create_task(_carry(client, port))
        tasks.add(task)
        task.add_done_callback(tasks.discard)


async def _carry(client: socket.socket, port: int) -> None:
    """Carry one connection. If nothing listens yet, close it at once, like a refusal."""
    with client, contextlib.suppress(RequestError):
        await relay(Connection(client), await connect(port))
