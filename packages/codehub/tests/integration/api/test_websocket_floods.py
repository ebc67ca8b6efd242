"""Clients that send WebSocket frames of a few bytes, or open many WebSockets, do not keep others out of the API."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from typing import Any

import pytest
import uvicorn

from codehub.api import server, websocket_server
from codehub.api.websocket_server import LimitedWebSocket
from testing.codehub.api import Api, listening

UPGRADE = (
    b"GET /api/v1/workspaces/x/terminals/y/attach HTTP/1.1\r\nHost: 127.0.0.1:8000\r\nConnection: Upgrade\r\n"
    b"Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)
PING, PONG = b"\x89\x80\x01\x02\x03\x04", b"\x8a\x00"


async def _receives(scope: Any, receive: Any, send: Any) -> None:
    """An application that takes every message."""
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.accept"})
        while (await receive())["type"] != "websocket.disconnect":
            pass


@contextlib.asynccontextmanager
async def _serving() -> AsyncIterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        config = uvicorn.Config(_receives, ws=LimitedWebSocket, log_config=None, access_log=False, lifespan="off")
        running = uvicorn.Server(config)
        task = asyncio.create_task(running.serve([listener]))
        try:
            yield listener.getsockname()[1]
        finally:
            running.should_exit = True
            running.force_exit = True
            await task


async def _open(port: int, source: str = "127.0.0.1") -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    while True:  # the server may not listen yet
        with contextlib.suppress(ConnectionRefusedError):
            reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(source, 0))
            break
    try:
        writer.write(UPGRADE)
        await reader.readuntil(b"\r\n\r\n")
    except BaseException:
        writer.close()
        raise
    return reader, writer


async def test_others_have_their_turn_while_a_flood_of_frames_is_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(websocket_server, "_SHARE", 1.0)
    turns, frames = 0, 20_000

    async def others() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    async with asyncio.timeout(60), _serving() as port:
        reader, writer = await _open(port)
        writer.write(PING * frames)
        await writer.drain()
        waiting = asyncio.create_task(others())
        await reader.readexactly(len(PONG) * frames)
        waiting.cancel()
        writer.close()
    assert turns >= len(PING) * frames // 1024, "at most 170 frames without a turn"


async def test_a_flood_uses_up_the_budget_of_its_address_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(websocket_server, "_SHARE", 1e-9)  # the first slice uses it up
    async with asyncio.timeout(60), _serving() as port:
        floods = [await _open(port) for _ in range(3)]
        for _, writer in floods:
            writer.write(PING * 5_000)
        typing_too = await _open(port)
        elsewhere = await _open(port, "127.0.0.2")
        for reader, writer in (typing_too, elsewhere):
            writer.write(PING)  # short enough to be parsed at once
            assert await reader.readexactly(len(PONG)) == PONG
        elsewhere[1].write(PING * 100)
        await elsewhere[0].readexactly(len(PONG) * 100)
        answered = sum(len(reader._buffer) for reader, _ in floods)  # type: ignore[attr-defined, misc]
        assert answered <= len(PONG) * 1024 // len(PING)
        for _, writer in (*floods, typing_too, elsewhere):
            writer.close()


async def test_websockets_count_as_connections_of_their_address(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    most = 20
    monkeypatch.setattr(server, "most_per_address", lambda _: most)
    async with asyncio.timeout(120), listening(api) as address:
        port = int(address.rpartition(":")[2])
        opened = [await _open(port) for _ in range(most)]
        with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
            await _open(port)
        for _, writer in opened:
            writer.transport.abort()
        while True:  # until the server has noticed
            with contextlib.suppress(ConnectionResetError, asyncio.IncompleteReadError):
                _, writer = await _open(port)
                writer.close()
                break
