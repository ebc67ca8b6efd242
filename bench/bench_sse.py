"""EventBroadcaster events: 1,000 open streams, 100 updates a second: how long from a row's commit to the browser's socket.

The whole path: UPDATE → hint on Redis → one load → a frame to each of the ten streams of its owner. The clients run in a
process of their own, so that reading does not compete with sending for one event loop.
"""

from __future__ import annotations

import asyncio
import json
import logging
import multiprocessing
import shutil
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import structlog

from codehub.adapters.embedded.postgres import EmbeddedPostgres
from codehub.adapters.embedded.valkey import EmbeddedValkey
from codehub.adapters.postgres.migrate import migrate
from codehub.adapters.postgres.pool import Database
from codehub.adapters.redis.bus import RedisBus
from codehub.adapters.redis.client import connect
from codehub.services.event_stream import Pace
from testing.codehub.api import listening, running_api, until
from testing.codehub.services import service_dir
from testing.codehub.sse import EventStream

STREAMS = 1_000
USERS = 100
UPDATES_PER_S = 100
SECONDS = 10


def measure() -> list[dict[str, object]]:
    # A thousand streams log a thousand lines, to a terminal that is no part of this.
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    with _servers() as (database_url, redis_url):
        delays_ms, delivered = asyncio.run(_measure(database_url, redis_url))
    delays_ms.sort()
    expected = SECONDS * UPDATES_PER_S * STREAMS // USERS
    return [
        {
            "what": f"{STREAMS} streams, {UPDATES_PER_S} updates/s: delay p50",
            "value": _at(delays_ms, 0.5),
            "unit": "ms",
        },
        {
            "what": f"{STREAMS} streams, {UPDATES_PER_S} updates/s: delay p99",
            "value": _at(delays_ms, 0.99),
            "unit": "ms",
        },
        {"what": "mean", "value": statistics.fmean(delays_ms), "unit": "ms"},
        {"what": "frames delivered (coalesced ones are fewer)", "value": delivered, "unit": f"of {expected}"},
    ]


def _at(values: list[float], share: float) -> float:
    return values[min(len(values) - 1, int(len(values) * share))]


@contextmanager
def _servers() -> Iterator[tuple[str, str]]:
    place = service_dir()
    postgres, valkey = EmbeddedPostgres(place / "pg"), EmbeddedValkey(place / "vk")
    try:
        postgres.start()
        valkey.start()
        yield postgres.url("postgres"), valkey.url
    finally:
        valkey.stop()
        postgres.stop()
        shutil.rmtree(place, ignore_errors=True)


async def _measure(database_url: str, redis_url: str) -> tuple[list[float], int]:
    await migrate(database_url)
    redis = connect(redis_url)
    pace = Pace(heartbeat_s=3_600)
    async with Database(database_url) as database, running_api(database, RedisBus(redis), pace=pace) as api:
        async with listening(api) as address:
            await until(lambda: api.live.connected)
            cookies, workspaces = [], []
            for number in range(USERS):
                client = await api.user(f"user{number}")
                cookies.append((client.cookies["session"], client.headers["X-CodeHub-Session-Key"]))
                made = await client.post("/api/v1/workspaces", json={"name": "w", "start": False})
                workspaces.append(made.json()["id"])
            ours, theirs = multiprocessing.Pipe()
            reader = multiprocessing.get_context("spawn").Process(target=_read, args=(address, cookies, theirs))
            reader.start()
            try:
                await asyncio.to_thread(ours.recv)
                await _update(database, RedisBus(redis), workspaces)
                await asyncio.sleep(1)
                ours.send("done")
                delays = await asyncio.to_thread(ours.recv)
            finally:
                reader.join(30)
                if reader.is_alive():
                    reader.kill()
    await redis.aclose()
    return delays, len(delays)


async def _update(database: Database, bus: RedisBus, workspaces: list[str]) -> None:
    """Each update carries the moment before its commit; both processes read the same clock."""
    began = time.monotonic()
    for number in range(SECONDS * UPDATES_PER_S):
        late = began + number / UPDATES_PER_S - time.monotonic()
        if late > 0:
            await asyncio.sleep(late)
        workspace_id = workspaces[number % len(workspaces)]
        async with database.transaction() as tx:
            await tx.execute("UPDATE workspaces SET memo = %s WHERE id = %s", [str(time.monotonic()), workspace_id])
        await bus.publish("codehub:sse:x", json.dumps({"id": workspace_id}))


def _read(address: str, cookies: list[tuple[str, str]], pipe: Any) -> None:
    asyncio.run(_read_all(address, cookies, pipe))


async def _read_all(address: str, cookies: list[tuple[str, str]], pipe: Any) -> None:
    streams = []
    for number in range(STREAMS):
        cookie, key = cookies[number % len(cookies)]
        headers = {"Cookie": f"session={cookie}", "X-CodeHub-Session-Key": key}
        streams.append(await EventStream.open(f"{address}/api/v1/events", headers))
    for stream in streams:
        await stream.next("snapshot")
    delays: list[float] = []

    async def read(stream: EventStream) -> None:
        while (event := await stream.event()) is not None:
            if event[0] == "workspace_updated":
                delays.append((time.monotonic() - float(event[1]["memo"])) * 1_000)

    readers = [asyncio.create_task(read(stream)) for stream in streams]
    pipe.send("ready")
    await asyncio.to_thread(pipe.recv)
    for task in readers:
        task.cancel()
    await asyncio.gather(*readers, return_exceptions=True)
    pipe.send(delays)
    for stream in streams:
        await stream.close()
