"""Strangers who open connections and say nothing do not keep others out of the API."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from codehub.api import server
from codehub.domain import body_pace
from testing.codehub.api import Api, listening

REQUEST = b"GET /health HTTP/1.1\r\nHost: 127.0.0.1:8000\r\n\r\n"


@pytest_asyncio.fixture
async def port(api: Api, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[int]:
    monkeypatch.setattr(server, "_HEAD_TIMEOUT_S", 2.0)
    monkeypatch.setattr(server, "most_per_address", lambda _: 20)
    async with listening(api) as address:
        yield int(address.rpartition(":")[2])


async def _ask(port: int, source: str = "127.0.0.2") -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(source, 0))
    writer.write(REQUEST)
    async with asyncio.timeout(60):
        line = await reader.readline()
    writer.close()
    return line


@pytest.mark.parametrize("said", [b"", b"GET / HTTP/1.1\r\nHost: x", REQUEST + b"GET /"])
async def test_a_head_that_is_not_complete_in_time_ends_the_connection(port: int, said: bytes) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(said)
    async with asyncio.timeout(60):
        try:
            await reader.read()  # to its end: the server closes it
        except ConnectionResetError:
            pass
    writer.close()


@pytest.mark.parametrize("path", ["/api/v1/login", "/api/v1/nothing"])
async def test_a_body_that_trickles_ends_the_connection(
    port: int, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether the API waits for the body or has answered without it."""
    for module in (server, body_pace):
        monkeypatch.setattr(module, "PAUSE_S", 1.0)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1:8000\r\nContent-Type: application/json\r\nContent-Length: 100000\r\n"
    writer.write(head.encode() + b"\r\n{")
    ended = asyncio.ensure_future(reader.read())
    async with asyncio.timeout(60):
        while not ended.done():
            with contextlib.suppress(ConnectionError):
                writer.write(b" ")
                await writer.drain()
            await asyncio.wait({ended}, timeout=0.1)
    writer.close()
    if isinstance(ended.exception(), ConnectionError):
        return  # a byte crossed the end of the connection, which resets it
    if path.endswith("login"):
        assert b" 408 " in ended.result()
        assert b"too slowly" in ended.result()


async def test_a_body_in_pieces_is_waited_for(port: int) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    body = b'{"username": "nobody", "password": "wrong wrong wrong"}'
    head = (
        "POST /api/v1/login HTTP/1.1\r\nHost: 127.0.0.1:8000\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    for piece in (head.encode(), body[:10], body[10:]):
        writer.write(piece)
        await writer.drain()
        await asyncio.sleep(0)
    async with asyncio.timeout(60):
        assert b" 401 " in await reader.readline()
    writer.close()


async def test_an_address_has_its_share_of_connections_and_others_get_in(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "_HEAD_TIMEOUT_S", 600.0)  # here it is the number that counts
    opened = [await asyncio.open_connection("127.0.0.1", port) for _ in range(20)]
    # Refused while those are there, whatever it asks.
    with contextlib.suppress(ConnectionError):
        assert await _ask(port, "127.0.0.1") == b""
    assert b" 200 " in await _ask(port)
    # What ended makes room.
    for _, each in opened:
        each.close()
    async with asyncio.timeout(60):
        while True:
            try:
                if b" 200 " in await _ask(port, "127.0.0.1"):
                    break
            except ConnectionError:
                pass
            await asyncio.sleep(0.05)
