"""Requests to a `workspaced` that restarts: those that change nothing are repeated, the others are not."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import pytest

from codehub.adapters.workspaced_client import Answer
from codehub.domain.errors import UpstreamUnavailable
from codehub.ports.instances import Upstream
from codehub.services.doors import Doors

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
HALF = b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{}"


class Helper:
    """Breaks the first connections after their request, as a helper does that is killed; then gives `answer`."""

    def __init__(self, breaks: int, answer: bytes = ANSWER) -> None:
        self.breaks = breaks
        self.answer = answer
        self.requests: list[bytes] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            head = await reader.readuntil(b"\r\n\r\n")  # a connection without a request only looks who listens
            self.requests.append(head.split(b" ", 1)[0])
            if len(self.requests) > self.breaks:
                writer.write(self.answer)
                await writer.drain()
        writer.close()


@contextlib.asynccontextmanager
async def running(helper: Helper, place: Path) -> AsyncIterator[tuple[Doors, Upstream]]:
    path = str(place / "helper.sock")
    doors = Doors(cast(Any, None), cast(Any, None), {}, lambda: datetime.now(UTC))
    async with await asyncio.start_unix_server(helper.serve, path):
        yield doors, Upstream("one", socket_path=path, secret=("Authorization", "Bearer x"), uid=os.getuid())


async def test_a_request_that_changes_nothing_survives_restarts(tmp_path: Path) -> None:
    helper = Helper(breaks=3)
    async with running(helper, tmp_path) as (doors, upstream):
        assert await doors.json(upstream, "GET", "/ports") == {}
    assert helper.requests == [b"GET"] * 4


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
async def test_a_request_that_may_have_changed_something_is_sent_once(tmp_path: Path, method: str) -> None:
    helper = Helper(breaks=1)
    async with running(helper, tmp_path) as (doors, upstream):
        with pytest.raises(UpstreamUnavailable, match="does not answer"):
            await doors.json(upstream, method, "/exec", {"command": "true"})
    assert helper.requests == [method.encode()]


async def test_an_answer_that_has_begun_is_not_asked_for_again(tmp_path: Path) -> None:
    helper = Helper(breaks=0, answer=HALF)
    async with running(helper, tmp_path) as (doors, upstream):
        with pytest.raises(UpstreamUnavailable, match="in the middle"):
            await doors.json(upstream, "GET", "/ports")
    assert helper.requests == [b"GET"]


async def test_a_stream_is_opened_again_while_nothing_has_flowed(tmp_path: Path) -> None:
    helper = Helper(breaks=2, answer=b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
    async with running(helper, tmp_path) as (doors, upstream), doors.stream(upstream, "/tcp/1") as answer:
        assert isinstance(answer, Answer)
        assert answer.status == 404
    assert helper.requests == [b"GET"] * 3


async def test_an_answer_that_would_take_long_to_parse_is_refused(tmp_path: Path) -> None:
    """32 MB of empty lists took seconds, in which nobody's requests were answered."""
    body = b"[" + b"[]," * 200_000 + b"0]"
    helper = Helper(breaks=0, answer=b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    async with running(helper, tmp_path) as (doors, upstream):
        with pytest.raises(UpstreamUnavailable, match="too long"):
            await doors.json(upstream, "GET", "/ports")
