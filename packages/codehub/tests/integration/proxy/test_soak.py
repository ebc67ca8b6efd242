"""Hundreds of connections of every kind, cut at random on both sides: afterwards nothing is left behind."""

from __future__ import annotations

import asyncio
import gc
import os
import random
import socket
import time
from pathlib import Path

import psutil
import pytest

from codehub.adapters.memory.activity import MemoryActivity
from codehub.ports.instances import Upstream
from codehub.proxy.activity import ActivityBuffer
from codehub.proxy.clock import Clock
from codehub.proxy.hub import Hub
from testing.proxy import PREFIX, OpenGate

SECONDS = 60 if os.environ.get("CODEHUB_TEST_SOAK") == "1" else 8
HEAD = f"{PREFIX}/x HTTP/1.1\r\nHost: localhost\r\n"


class Unruly:
    """An upstream that answers, stalls, lies and hangs up, by chance."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        self.server: asyncio.Server | None = None

    async def start(self, port: int = 0) -> int:
        self.server = await asyncio.start_server(self._serve, "127.0.0.1", port)
        return int(self.server.sockets[0].getsockname()[1])

    def stop(self) -> None:
        if self.server is not None:
            self.server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                chance = self._chance.random()
                if b"Upgrade" in head:
                    writer.write(b"HTTP/1.1 101 X\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
                    for _ in range(self._chance.randrange(30)):
                        writer.write(await reader.read(4096))
                        await writer.drain()
                    return
                if chance < 0.15:
                    return
                if chance < 0.3:
                    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n" + b"x" * 20_000)
                    return
                if chance < 0.35:
                    writer.transport.abort()
                    return
                if chance < 0.6:
                    writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n")
                else:
                    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 60000\r\n\r\n" + b"y" * 60_000)
                await writer.drain()
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass
        finally:
            writer.close()


async def visit(port: int, chance: random.Random) -> None:
    """One client: some requests, of some kind, and an end of some kind."""
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return
    try:
        for _ in range(chance.randrange(1, 6)):
            kind = chance.random()
            if kind < 0.25:
                writer.write(f"GET {HEAD}Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n".encode())
                for _ in range(chance.randrange(8)):
                    writer.write(b"\x82\x84abcd" + b"wxyz")
                    await asyncio.wait_for(reader.read(4096), 0.2)
            elif kind < 0.45:
                writer.write(
                    f"POST {HEAD}Content-Length: 50000\r\n\r\n".encode() + b"z" * chance.choice([50_000, 100])
                )
            elif kind < 0.55:
                writer.write(f"POST {HEAD}Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n".encode())
            elif kind < 0.6:
                writer.write(b"nonsense\r\n\r\n")
            else:
                writer.write(f"GET {HEAD}\r\n".encode())
            if chance.random() < 0.8:
                await asyncio.wait_for(reader.read(100_000), 0.3)
        if chance.random() < 0.3:
            writer.transport.abort()
    except (OSError, TimeoutError):
        pass
    finally:
        writer.close()


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.mark.timeout(300)
async def test_nothing_is_left_behind_by_hundreds_of_broken_conversations() -> None:
    loop = asyncio.get_running_loop()
    chance = random.Random(5)
    unruly = Unruly(7)
    upstream_port = await unruly.start()
    clock = Clock(loop.time, time.time)
    buffer = ActivityBuffer(MemoryActivity(), clock, flush_interval_s=3600, ttl_standby_s=7200)
    gate = OpenGate(Upstream("one", "127.0.0.1", upstream_port), buffer, strip=True, noise=())
    hub = Hub(gate, gate, clock, grace_s=0.5)
    hub.on_stop.append(gate.close)
    listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
    port = listener.getsockname()[1]
    before = descriptors()
    running = asyncio.create_task(hub.run([listener]))
    memory = 0
    until = loop.time() + SECONDS
    rounds = 0
    while loop.time() < until or rounds < 4:
        await asyncio.gather(*(visit(port, chance) for _ in range(100)))
        rounds += 1
        if rounds % 3 == 0:
            unruly.stop()
            await visit(port, chance)
            await unruly.start(upstream_port)
        if rounds == 2:
            gc.collect()
            memory = psutil.Process().memory_info().rss
    # Whoever left has left: nothing is open on the proxy's own account but what idles in the pool for its few seconds.
    async with asyncio.timeout(120):
        while hub.connections or hub.tunnels or (gate.admission is not None and gate.admission.target.pool.open):
            if gate.admission is not None:
                gate.admission.target.pool.sweep()
            await asyncio.sleep(0.1)
    gc.collect()
    assert psutil.Process().memory_info().rss < memory + 60 * 1024 * 1024
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    unruly.stop()
    async with asyncio.timeout(60):
        while descriptors() > before + 3:
            await asyncio.sleep(0.1)
