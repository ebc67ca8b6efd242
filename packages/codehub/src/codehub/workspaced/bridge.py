"""From a Unix socket to an IDE that can only listen on a port of the workspace's own loopback.

A process of its own, so that a `workspaced` that dies takes no connection of the IDE with it.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket

from .errors import RequestError
from .http1 import Connection
from .server import listen
from .streams import connect, relay

_MOST_CONNECTIONS = 4096


def run(where: object) -> None:
    """`where` is [socket, port]."""
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
            await asyncio.sleep(0.05)  # no descriptors left; those that are open go on
            continue
        if len(tasks) >= _MOST_CONNECTIONS:
            client.close()
            continue
        client.setblocking(False)
        task = loop.create_task(_carry(client, port))
        tasks.add(task)
        task.add_done_callback(tasks.discard)


async def _carry(client: socket.socket, port: int) -> None:
    """Nothing listening yet is a connection that is closed at once, as a refusal would be."""
    with client, contextlib.suppress(RequestError):
        await relay(Connection(client), await connect(port), _ignore)


def _ignore(size: int) -> None:
    """What an IDE carries is counted by the proxy."""
