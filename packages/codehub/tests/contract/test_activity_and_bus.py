"""The activity store and the bus: the same behaviour in memory and on a real Valkey."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from hypothesis import given
from hypothesis import strategies as st

from codehub.adapters.embedded.valkey import EmbeddedValkey
from codehub.adapters.redis.activity import RedisActivity
from codehub.adapters.redis.bus import RedisBus
from codehub.adapters.redis.client import connect
from codehub.domain.errors import BackendDown
from codehub.ports.activity import ActivityStore
from codehub.ports.bus import Bus
from testing.codehub.memory.activity import MemoryActivity
from testing.codehub.memory.bus import MemoryBus

TIMEOUT_S = 60


@pytest_asyncio.fixture(params=["memory", "redis"])
async def activity(request: pytest.FixtureRequest) -> AsyncIterator[ActivityStore]:
    if request.param == "memory":
        yield MemoryActivity()
        return
    client = connect(request.getfixturevalue("redis_url"))
    yield RedisActivity(client)
    await client.aclose()


@pytest_asyncio.fixture(params=["memory", "redis"])
async def bus(request: pytest.FixtureRequest) -> AsyncIterator[Bus]:
    if request.param == "memory":
        yield MemoryBus()
        return
    client = connect(request.getfixturevalue("redis_url"))
    yield RedisBus(client)
    await client.aclose()


async def test_a_time_never_goes_backwards(activity: ActivityStore) -> None:
    await activity.flush({"a": 20.5, "b": 7.0})
    await activity.flush({"a": 10.25, "b": 8.0})
    assert await activity.pending() == {"a": 20.5, "b": 8.0}


async def test_only_what_is_still_as_it_was_stored_is_forgotten(activity: ActivityStore) -> None:
    await activity.flush({"a": 1763251200.123456, "b": 2.0, "c": 3.0})
    stored = await activity.pending()
    await activity.flush({"b": 5.0})
    await activity.forget(stored)
    assert await activity.pending() == {"b": 5.0}


async def test_thousands_of_touches_go_through_whole(activity: ActivityStore) -> None:
    touched = {f"workspace-{number}": float(number) for number in range(5_000)}
    await activity.flush(touched)
    assert await activity.pending() == touched
    await activity.forget(touched)
    assert await activity.pending() == {}


async def test_nothing_is_nothing(activity: ActivityStore) -> None:
    await activity.flush({})
    await activity.forget({})
    assert await activity.pending() == {}


@given(st.lists(st.dictionaries(st.sampled_from("abc"), st.floats(1, 2e9), max_size=3), max_size=5))
async def test_the_latest_time_of_each_wins(flushes: list[dict[str, float]]) -> None:
    activity = MemoryActivity()
    for touched in flushes:
        await activity.flush(touched)
    latest: dict[str, float] = {}
    for touched in flushes:
        for name, at in touched.items():
            latest[name] = max(at, latest.get(name, at))
    assert await activity.pending() == latest


async def heard(bus: Bus, *channels: str, count: int, listening: asyncio.Event) -> list[tuple[str, str]]:
    """The first `count` messages beside the hellos; `listening` is set by the first hello."""
    got: list[tuple[str, str]] = []
    async for message in bus.subscribe(*channels):
        if message[1] == "hello":
            listening.set()
        else:
            got.append(message)
        if len(got) == count:
            return got
    return got


@pytest.mark.parametrize("channels", [("one", "two"), ("one", "tw*")])
async def test_a_subscriber_hears_its_channels_and_no_others(bus: Bus, channels: tuple[str, ...]) -> None:
    listening = asyncio.Event()
    async with asyncio.timeout(TIMEOUT_S), asyncio.TaskGroup() as group:
        hearing = group.create_task(heard(bus, *channels, count=2, listening=listening))
        while not listening.is_set():
            await bus.publish("one", "hello")
            await asyncio.sleep(0.01)
        await bus.publish("three", "not for you")
        await bus.publish("two", "2")
        await bus.publish("one", "1")
    assert hearing.result() == [("two", "2"), ("one", "1")]


async def test_publishing_to_nobody_is_fine(bus: Bus) -> None:
    await bus.publish("nobody", "hears this")


async def test_a_cancelled_subscription_ends(bus: Bus) -> None:
    async def listen() -> None:
        async for _ in bus.subscribe("quiet"):
            pass

    task = asyncio.create_task(listen())
    await asyncio.sleep(0)
    task.cancel()
    async with asyncio.timeout(TIMEOUT_S):
        with pytest.raises(asyncio.CancelledError):
            await task


async def test_a_valkey_that_dies_is_said_to_be_away_and_serves_again_when_it_is_back(
    valkey_server: EmbeddedValkey,
) -> None:
    client = connect(valkey_server.url)
    activity, bus = RedisActivity(client), RedisBus(client)
    await activity.flush({"a": 1.0})
    broken = asyncio.ensure_future(anext(aiter(bus.subscribe("channel"))))
    await asyncio.sleep(0)
    valkey_server.stop()
    with pytest.raises(BackendDown):
        await activity.flush({"a": 2.0})
    with pytest.raises(BackendDown):
        await bus.publish("channel", "x")
    async with asyncio.timeout(TIMEOUT_S):
        with pytest.raises(BackendDown):
            await broken
    valkey_server.start()
    await activity.flush({"a": 3.0})
    assert await activity.pending() == {"a": 3.0}
    await client.aclose()
