"""Hundreds of connections of every kind, cut at random on both sides: afterwards nothing is left behind.

The whole proxy: real database, real sign-in, an upstream that lies and restarts. What is left is read from the process
itself: descriptors, tasks, memory, the proxy's own gauges, and what the database and the upstream still hold open.
"""

from __future__ import annotations

import asyncio
import gc
import os
import random
import re
from pathlib import Path

import psutil
import psycopg
import pytest

from codehub.adapters.postgres.pool import Database
from codehub.ports.instances import Upstream
from testing.codehub.proxy_access import World, world

SECONDS = 60 if os.environ.get("CODEHUB_TEST_SOAK") == "1" else 8
AT_ONCE = 150


class Unruly:
    """An upstream that answers, stalls, lies and hangs up, by chance."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        self.server: asyncio.Server | None = None
        self.open = 0

    async def start(self, port: int = 0) -> int:
        self.server = await asyncio.start_server(self._serve, "127.0.0.1", port)
        return int(self.server.sockets[0].getsockname()[1])

    def stop(self) -> None:
        if self.server is not None:
            self.server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.open += 1
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                if not await self._answer(head, reader, writer):
                    return
                await writer.drain()
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass
        finally:
            self.open -= 1
            writer.close()

    async def _answer(self, head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """False to hang up."""
        chance = self._chance.random()
        if b"Upgrade" in head:
            writer.write(b"HTTP/1.1 101 X\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
            for _ in range(self._chance.randrange(30)):
                writer.write(await reader.read(4096))
                await writer.drain()
            return False
        if b"GET /events" in head:
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
            for _ in range(self._chance.randrange(20)):
                writer.write(b"data: x\n\n")
                await writer.drain()
                await asyncio.sleep(0.02)
            return False
        if chance < 0.15:
            return False
        if chance < 0.3:
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n" + b"x" * 20_000)
            return False
        if chance < 0.35:
            writer.transport.abort()
            return False
        if chance < 0.6:
            writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n")
        else:
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 60000\r\n\r\n" + b"y" * 60_000)
        return True


class Visitors:
    """Clients of one workspace: some signed in, some not, each with some requests and an end of some kind."""

    def __init__(self, here: World, workspace_id: str, secret: str, seed: int) -> None:
        self._port = here.port
        self._chance = random.Random(seed)
        self._path = f"/w/{workspace_id}"
        self._head = f"HTTP/1.1\r\nHost: {here.authority()}\r\n"
        self._cookie = f"Cookie: codehub_ws={secret}\r\n"
        self.answers: dict[int, int] = {}

    async def visit(self) -> None:
        chance = self._chance
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        except OSError:
            return
        try:
            for _ in range(chance.randrange(1, 6)):
                await self._ask(reader, writer)
                if chance.random() < 0.8:
                    self._count(await asyncio.wait_for(reader.read(100_000), 0.3))
            end = chance.random()
            if end < 0.3:
                writer.transport.abort()
            elif end < 0.5 and writer.can_write_eof():
                writer.write_eof()
                await asyncio.wait_for(reader.read(1000), 0.2)
        except (OSError, TimeoutError):
            pass
        finally:
            writer.close()

    async def _ask(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        chance = self._chance
        kind = chance.random()
        head = self._head + (self._cookie if chance.random() < 0.9 else "Cookie: codehub_ws=wrong\r\n")
        if kind < 0.2:
            writer.write(f"GET {self._path}/ws {head}Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n".encode())
            for _ in range(chance.randrange(8)):
                writer.write(b"\x82\x84abcd" + b"wxyz")
                self._count(await asyncio.wait_for(reader.read(4096), 0.2))
        elif kind < 0.35:
            sent = chance.choice([50_000, 100])
            writer.write(f"POST {self._path}/x {head}Content-Length: 50000\r\n\r\n".encode() + b"z" * sent)
        elif kind < 0.45:
            body = chance.choice(["3\r\nabc\r\n0\r\n\r\n", "3\r\nab", "zz\r\n"])
            writer.write(f"POST {self._path}/x {head}Transfer-Encoding: chunked\r\n\r\n{body}".encode())
        elif kind < 0.5:
            writer.write(b"nonsense\r\n\r\n")
        elif kind < 0.55:
            writer.write(f"GET {self._path}/slow {head}X-Unfinished: ".encode())
        elif kind < 0.65:
            writer.write(f"GET {self._path}/events {head}\r\n".encode())
        elif kind < 0.75:
            writer.write(f"GET {self._path}/x {head}\r\n".encode() * 5)
        else:
            writer.write(f"GET {self._path}/x {head}\r\n".encode())

    def _count(self, data: bytes) -> None:
        for status in re.findall(rb"HTTP/1\.1 (\d{3}) ", data):
            self.answers[int(status)] = self.answers.get(int(status), 0) + 1


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


async def gauges(here: World) -> dict[str, int]:
    """The proxy's own count of what is open."""
    async with here.browser() as client:
        text = (await client.get("/metrics")).text
    return {kind: int(n) for kind, n in re.findall(r'codehub_proxy_connections\{kind="(\w+)"\} (\d+)', text)}


async def busy_in_database(url: str) -> int:
    """Connections that are in a transaction: the pool's own idle ones are not."""
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        found = await connection.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
            " AND backend_type = 'client backend' AND state <> 'idle'"
        )
        row = await found.fetchone()
    assert row is not None
    return int(row[0])


@pytest.mark.timeout(400)
async def test_nothing_is_left_behind_by_hundreds_of_broken_conversations(database: Database) -> None:
    loop = asyncio.get_running_loop()
    unruly = Unruly(7)
    upstream_port = await unruly.start()
    async with world(database) as here:
        workspace_id = await here.workspace()
        here.placed.upstreams[workspace_id] = Upstream("unruly", "127.0.0.1", upstream_port)
        browser = await here.signed_in(workspace_id)
        visitors = Visitors(here, workspace_id, browser.cookies["codehub_ws"], 5)
        await browser.aclose()
        await visitors.visit()
        before, tasks = descriptors(), len(asyncio.all_tasks())
        memory = rounds = 0
        until = loop.time() + SECONDS
        # Real work: complete answers, refusals, switches, unknown cookies, an upstream that was away.
        every_kind = {101, 200, 400, 401, 502}
        while loop.time() < until or rounds < 5 or not every_kind <= set(visitors.answers):
            await asyncio.gather(*(visitors.visit() for _ in range(AT_ONCE)))
            rounds += 1
            if rounds % 3 == 0:
                unruly.stop()
                await visitors.visit()
                await unruly.start(upstream_port)
            if rounds == 3:
                gc.collect()
                memory = psutil.Process().memory_info().rss
        # Whoever left has left. Our own question is the one connection that is open while it is asked.
        async with asyncio.timeout(150):
            while (
                await gauges(here) != {"http": 1, "tunnel": 0} or unruly.open or await busy_in_database(database.url)
            ):
                await asyncio.sleep(0.2)
            while descriptors() > before + 3 or len(asyncio.all_tasks()) > tasks + 2:
                await asyncio.sleep(0.2)
        gc.collect()
        assert psutil.Process().memory_info().rss < memory + 40 * 1024 * 1024
        # And it still works.
        visitors.answers.clear()
        await asyncio.gather(*(visitors.visit() for _ in range(20)))
        assert visitors.answers.get(200)
    unruly.stop()
