"""The relay between a connection to `workspaced` and a port: every byte, both directions, back-pressure, and its end."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress

import pytest

from codehub.workspaced.http1 import Connection
from codehub.workspaced.streams import relay

# Far more than the buffers of two sockets hold, so that both directions have to wait.
LARGE = os.urandom(1 << 20) * 8
DEADLINE_S = 60.0

Ends = tuple[socket.socket, socket.socket, "asyncio.Task[None]"]


@asynccontextmanager
async def relayed(ahead: bytes = b"") -> AsyncIterator[Ends]:
    """The two outer ends of a relay, and the relay itself. `ahead` came with the head of the request."""
    client, inner = socket.socketpair()
    other, server = socket.socketpair()
    for sock in (client, inner, other, server):
        sock.setblocking(False)
    connection = Connection(inner)
    if ahead:
        client.send(b"\r\n\r\n" + ahead)
        await connection.read_head()
    task = asyncio.ensure_future(relay(connection, other))
    try:
        yield client, server, task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert other.fileno() == -1, "the relay closes the connection to the port"
        for sock in (client, inner, server):
            sock.close()


async def read_to_end(sock: socket.socket) -> bytes:
    whole = bytearray()
    while data := await asyncio.get_running_loop().sock_recv(sock, 1 << 16):
        whole += data
    return bytes(whole)


def run(work: Callable[[], Coroutine[None, None, None]]) -> None:
    asyncio.run(asyncio.wait_for(work(), DEADLINE_S))


def test_both_directions_carry_large_data_at_once_and_end_separately() -> None:
    async def work() -> None:
        loop = asyncio.get_running_loop()
        async with relayed() as (client, server, task):

            async def send(sock: socket.socket, data: bytes) -> None:
                await loop.sock_sendall(sock, data)
                sock.shutdown(socket.SHUT_WR)

            down, up, _, _ = await asyncio.gather(
                read_to_end(client), read_to_end(server), send(client, LARGE), send(server, LARGE[::-1])
            )
            assert up == LARGE
            assert down == LARGE[::-1]
            await task

    run(work)


def test_what_came_with_the_request_is_sent_first() -> None:
    async def work() -> None:
        loop = asyncio.get_running_loop()
        async with relayed(b"first ") as (client, server, _):
            await loop.sock_sendall(client, b"second")
            client.shutdown(socket.SHUT_WR)
            assert await read_to_end(server) == b"first second"

    run(work)


def test_a_client_that_finished_sending_still_gets_its_answer() -> None:
    async def work() -> None:
        loop = asyncio.get_running_loop()
        async with relayed() as (client, server, task):
            client.shutdown(socket.SHUT_WR)
            assert await read_to_end(server) == b""
            assert not task.done()
            await loop.sock_sendall(server, LARGE[:300_000])
            server.close()
            assert await read_to_end(client) == LARGE[:300_000]
            await task

    run(work)


@pytest.mark.parametrize("waiting", [b"", LARGE], ids=["idle", "with unsent data"])
def test_the_relay_ends_when_the_reader_of_its_data_is_gone(waiting: bytes) -> None:
    async def work() -> None:
        loop = asyncio.get_running_loop()
        async with relayed() as (client, server, task):
            sending = asyncio.ensure_future(loop.sock_sendall(client, waiting or b"x"))
            await loop.sock_recv(server, 1)
            server.close()
            while not task.done():
                with suppress(OSError):
                    client.send(b"more")
                await asyncio.sleep(0)
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)

    run(work)


def test_a_reader_that_does_not_read_stops_the_sender() -> None:
    async def work() -> None:
        loop = asyncio.get_running_loop()
        async with relayed() as (client, server, task):
            sending = asyncio.ensure_future(loop.sock_sendall(client, LARGE))
            # The opposite direction goes on, and shows that the relay had its turn many times.
            for _ in range(200):
                await loop.sock_sendall(server, b"ping")
                await loop.sock_recv(client, 4)
            assert not sending.done(), "the relay reads only what it can send"
            assert not task.done()
            received = 0
            while received < len(LARGE):
                received += len(await loop.sock_recv(server, 1 << 20))
            await sending

    run(work)
