"""One stream's queue: order, coalescing, ends."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any, cast

import pytest

from codehub.services.event_stream import HEARTBEAT, EventBroadcaster, Pace, Stream, _ids_in, frame
from testing.codehub.api import AwayBus

WS = "01890a5d-ac96-774b-bcce-b302099a8057"


async def test_the_newest_frame_of_a_workspace_replaces_one_that_was_not_sent() -> None:
    stream = Stream("ada", "session")
    stream.begin(b"snapshot;")
    stream.offer("a", b"a1;")
    stream.offer("b", b"b1;")
    stream.offer("a", b"a2;")
    assert await stream.next(60) == b"snapshot;b1;a2;"
    stream.offer("a", b"a3;")
    assert await stream.next(60) == b"a3;"


async def test_nothing_comes_before_the_snapshot_and_a_new_snapshot_replaces_what_waits() -> None:
    stream = Stream("ada", "session")
    stream.offer("a", b"too early;")
    assert await stream.next(0) == HEARTBEAT
    stream.begin(b"one;")
    stream.offer("a", b"a;")
    stream.begin(b"two;")
    assert await stream.next(60) == b"two;"


async def test_an_ended_stream_says_so_whatever_waits() -> None:
    stream = Stream(None, "session")
    stream.begin(b"snapshot;")
    stream.end()
    assert await stream.next(60) is None


def test_frames_are_server_sent_events() -> None:
    assert frame("workspace_deleted", '{"id":"x"}') == b'event: workspace_deleted\ndata: {"id":"x"}\n\n'


def test_hints_that_are_not_ids_are_nobodys() -> None:
    assert _ids_in(f'{{"id": "{WS}", "owner": "x"}}') == [WS]
    assert _ids_in(WS) == [WS]
    for payload in ("", "{", "null", "[]", '{"id": 5}', '{"id": "x\\u0000"}', "'; DROP TABLE workspaces"):
        assert _ids_in(payload) == []


async def test_it_ends_when_it_is_cancelled_in_any_moment_of_a_failing_bus() -> None:
    """A cancellation that came together with the bus's failure was lost, and the API did not stop."""
    for turns in range(60):
        live = EventBroadcaster(
            cast(Any, None),
            AwayBus(),
            prefix="x:",
            render=cast(Any, None),
            clock=lambda: datetime.now(UTC),
            ids=lambda: "id",
            pace=Pace(tick_s=60, poll_s=60, retry_s=0),
        )
        running = asyncio.create_task(live.run())
        for _ in range(turns):
            await asyncio.sleep(0)
        running.cancel()
        async with asyncio.timeout(60):
            with pytest.raises(asyncio.CancelledError):
                await running
