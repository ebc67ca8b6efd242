"""Activity reaches its store before a workspace with the shortest TTL is put to sleep."""

from __future__ import annotations

import asyncio
import contextlib
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codehub.domain.templates import SHORTEST_TTL
from codehub.domain.ttl import shortest_standby_ttl
from codehub.proxy.activity.buffer import ActivityBuffer
from codehub.proxy.coarse_clock import CoarseClock
from testing.codehub.memory.activity import MemoryActivity
from testing.codehub.simulation.loop import VirtualLoop, run_virtual

TTL_S = SHORTEST_TTL.total_seconds()


async def _longest_silence(silences: list[float], flush_interval_s: float, ttl_s: float) -> float:
    """Return how long the store saw no activity, at most, of somebody who works with these pauses."""
    loop = asyncio.get_running_loop()
    clock = CoarseClock(loop.time, loop.time)
    shortest = shortest_standby_ttl(timedelta(seconds=ttl_s)).total_seconds()
    store = MemoryActivity()
    buffer = ActivityBuffer(store, clock, flush_interval_s=flush_interval_s, shortest_ttl_s=shortest)
    flushing = asyncio.create_task(buffer.run())
    longest, stored = 0.0, loop.time()
    for silence in silences:
        until = loop.time() + silence
        while loop.time() < until:
            await asyncio.sleep(min(1.0, until - loop.time()))
            stored = (await store.pending()).get("w", stored)
            longest = max(longest, loop.time() - stored)
        clock.tick()
        buffer.of("w").touch()
        for _ in range(5):  # an immediate flush takes place between two events of the loop
            await asyncio.sleep(0)
    flushing.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await flushing
    return longest


@given(
    st.lists(st.floats(0.1, TTL_S - 2), min_size=1, max_size=30),
    st.floats(1, 3600),
    st.floats(2 * TTL_S, 10_800),
)
@settings(max_examples=60, deadline=None)
def test_a_workspace_in_use_is_never_idle_for_as_long_as_the_shortest_ttl(
    silences: list[float], flush_interval_s: float, ttl_s: float
) -> None:
    assert run_virtual(_longest_silence(silences, flush_interval_s, ttl_s), VirtualLoop()) < TTL_S


@pytest.mark.parametrize("flush_interval_s", [30, 600])
def test_a_touch_late_in_the_ttl_is_stored_at_once(flush_interval_s: float) -> None:
    seen = run_virtual(_longest_silence([1, 55, 50], flush_interval_s, 10_800), VirtualLoop())
    assert seen == pytest.approx(55, abs=1)
