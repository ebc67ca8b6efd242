"""What an IDE says about activity, asked over real sockets: believed when it makes sense, harmless when it does not."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from codehub.adapters import upstream_activity, workspaced_client
from codehub.adapters.upstream_activity import UpstreamActivity
from codehub.domain.errors import UpstreamUnavailable
from codehub.ports.instances import Upstream

NOW = datetime(2026, 11, 16, 12, 0, tzinfo=UTC)
EARLIER = NOW - timedelta(minutes=3)


class Ide:
    """Answers every request with the same bytes, and keeps what it was asked."""

    def __init__(self, answer: bytes, *, drip: bool = False) -> None:
        self.requests: list[bytes] = []
        self._answer = answer
        self._drip = drip

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            self.requests.append(await reader.readuntil(b"\r\n\r\n"))
            writer.write(self._answer)
            while self._drip:
                writer.write(b" ")
                await writer.drain()
                await asyncio.sleep(0.01)
            await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


def ok(body: bytes, *headers: str) -> bytes:
    lines = "".join(f"{line}\r\n" for line in (f"Content-Length: {len(body)}", *headers))
    return f"HTTP/1.1 200 OK\r\n{lines}\r\n".encode() + body


@asynccontextmanager
async def listening(ide: Ide, address: str = "127.0.0.1") -> AsyncIterator[Upstream]:
    server = await asyncio.start_server(ide.serve, address, 0)
    async with server:
        host, port = server.sockets[0].getsockname()[:2]
        yield Upstream("i-1", host=host, port=port)


async def reported_activity(answer: bytes, **how: Any) -> datetime | None:
    async with listening(Ide(answer, **how)) as upstream:
        work = await UpstreamActivity().work(upstream, "/activity", NOW)
        return None if work is None else work.at


@pytest.mark.parametrize(
    ("body", "when"),
    [
        (b'{"active": true}', NOW),
        (b'{"last_active_at": "2026-11-16T11:57:00Z"}', EARLIER),
        (b'{"last_active_at": "2026-11-16T11:57:00"}', EARLIER),
        (b'{"last_active_at": "2026-11-16T20:57:00+09:00"}', EARLIER),
        (b'{"last_active_at": %d}' % EARLIER.timestamp(), EARLIER),
        (b'{"last_active_at": "2030-01-01T00:00:00Z"}', NOW),
    ],
)
async def test_what_makes_sense_is_believed_but_never_lies_in_the_future(body: bytes, when: datetime) -> None:
    assert await reported_activity(ok(body)) == when


@pytest.mark.parametrize("offset", ["+23:59", "-23:59:59", "+01:00:00.000001"])
async def test_a_time_is_stored_without_its_offset(offset: str) -> None:
    """PostgreSQL refuses these, and with them the statement that stores the times of all workspaces."""
    found = await reported_activity(ok(f'{{"last_active_at": "2026-11-15T00:00:00{offset}"}}'.encode()))
    assert found is not None
    assert found.tzinfo is UTC


async def test_an_ide_at_an_ipv6_address_is_asked_too() -> None:
    """Pods of some clusters have no other addresses."""
    async with listening(Ide(ok(b'{"active": true}')), "::1") as upstream:
        work = await UpstreamActivity().work(upstream, "/activity", NOW)
    assert work is not None


@pytest.mark.parametrize(
    ("reason", "shown"),
    [
        ("pytest -n 4", "pytest -n 4"),
        ("python3 -c '\nimport time\n\n  work()\n'", "python3 -c ' import time work() '"),
        ("x" * 500, "x" * 79 + "…"),
        ("\x1b[31m", "[31m"),
        (" \n", "the IDE"),
    ],
    ids=["short", "several lines", "long", "an escape", "empty"],
)
async def test_a_reason_is_one_short_line(reason: str, shown: str) -> None:
    body = json.dumps({"active": True, "reason": reason}).encode()
    async with listening(Ide(ok(body))) as upstream:
        work = await UpstreamActivity().work(upstream, "/activity", NOW)
    assert work is not None
    assert work.reason == shown


NO_ACTIVITY = {
    "inactive": ok(b'{"active": false}'),
    "a word": ok(b'{"active": "true"}'),
    "null": ok(b'{"last_active_at": null}'),
    "no time": ok(b'{"last_active_at": "yesterday"}'),
    "a list": ok(b"[]"),
    "no json": ok(b"not json"),
    "no text": ok(b"\xff\xfe"),
    "nothing": ok(b""),
    # "beyond all years" and "nested too deep" once failed the whole tick: one workspace kept all others awake.
    "before all years": ok(b'{"last_active_at": "0001-01-01T00:00:00+09:00"}'),
    "beyond all years": ok(b'{"last_active_at": 1e300}'),
    "year 3 million": ok(b'{"last_active_at": 99999999999999}'),
    "not a number": ok(b'{"last_active_at": NaN}'),
    "nested too deep": ok(b"[" * 60_000),
    "compressed": ok(gzip.compress(b'{"active": true}' + b" " * 50_000_000), "Content-Encoding: gzip"),
    "not found": b"HTTP/1.1 404 Not Found\r\nContent-Length: 16\r\n\r\n" + b'{"active": true}',
    "elsewhere": b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n",
}
# Nobody knows whether a program works: this must not put the workspace to sleep.
NO_ANSWER = {
    "a server error": b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 17\r\n\r\n" + b'{"active": false}',
    "too long": ok(b'{"active": true, "x": "' + b"x" * 70_000 + b'"}'),
    "cut off": b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{",
    "interim responses without end": b"HTTP/1.1 100 \r\n\r\n" * 50_000,
    "a head without end": b"HTTP/1.1 200 OK\r\nX: " + b"x" * 500_000,
    "cookies": b"HTTP/1.1 200 OK\r\n" + b"Set-Cookie: a=b; Expires=Wed, 09 Jun 9999999999 10:18:14 GMT\r\n" * 5_000,
    "not http": b"nonsense\r\n\r\n",
    "silence": b"",
}


@pytest.mark.parametrize("what", NO_ACTIVITY)
async def test_anything_else_is_no_activity_and_no_error(what: str) -> None:
    assert await reported_activity(NO_ACTIVITY[what]) is None


@pytest.mark.parametrize("what", NO_ANSWER)
async def test_what_does_not_answer_is_not_taken_for_idle(what: str) -> None:
    with pytest.raises(UpstreamUnavailable):
        await reported_activity(NO_ANSWER[what])


async def test_an_answer_that_never_ends_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each byte comes in time; all of them never do."""
    monkeypatch.setattr(upstream_activity, "_TIMEOUT_S", 0.3)
    async with asyncio.timeout(60):
        with pytest.raises(UpstreamUnavailable):
            await reported_activity(b"HTTP/1.1 200 OK\r\n\r\n", drip=True)


async def test_an_answer_in_chunks_of_a_byte_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each chunk costs the coordinator as much as a large one: it reads them slowly, and only for a few seconds."""
    monkeypatch.setattr(workspaced_client, "_SMALL_PARTS_PER_S", 10)
    monkeypatch.setattr(upstream_activity, "_TIMEOUT_S", 1.0)
    body = b"".join(b"1\r\n%c\r\n" % byte for byte in b'{"active": true}' + b" " * 1000)
    with pytest.raises(UpstreamUnavailable):
        await reported_activity(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + body + b"0\r\n\r\n")


async def test_nobody_there_is_not_taken_for_idle() -> None:
    async with listening(Ide(b"")) as upstream:
        pass
    with pytest.raises(UpstreamUnavailable):
        await UpstreamActivity().work(upstream, "/activity", NOW)


async def test_a_socket_is_asked_with_its_secret(tmp_path: Path) -> None:
    ide = Ide(ok(b'{"active": true}'))
    path = str(tmp_path / "ide.sock")
    async with await asyncio.start_unix_server(ide.serve, path):
        upstream = Upstream("i-1", socket_path=path, secret=("X-Secret", "s3cret"))
        work = await UpstreamActivity().work(upstream, "/activity?x=1", NOW)
        assert work is not None
        assert work.at == NOW
    assert ide.requests[0].startswith(b"GET /activity?x=1 HTTP/1.1\r\n")
    assert b"x-secret: s3cret" in ide.requests[0].lower()
