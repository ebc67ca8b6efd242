"""A `workspaced` that its workspace replaced, and that answers so as to keep the API busy for all users."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import cast

import pytest

from codehub.adapters import build_files, workspaced_client
from codehub.adapters.build_files import WorkspacedFiles
from codehub.adapters.setup_channel import WorkspacedLinks
from codehub.adapters.workspaced_client import ByteStream, WorkspacedClient
from codehub.domain.errors import UpstreamUnavailable
from codehub.ports.instances import Upstream
from codehub.services import doors
from codehub.services.database import Database
from codehub.services.doors import Doors
from codehub.services.workspaces import Workspaces

OK = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


@contextlib.asynccontextmanager
async def answering(place: Path, first: bytes, rest: bytes) -> AsyncIterator[Upstream]:
    """Answers each request with `first`, then with `rest` for as long as it is read."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(first)
            while rest:
                writer.write(rest)
                await writer.drain()
        writer.close()

    path = str(place / "helper.sock")
    async with await asyncio.start_unix_server(serve, path):
        yield Upstream(str(place), socket_path=path, secret=("Authorization", "Bearer x"), uid=os.getuid())


@pytest.mark.parametrize(
    "rest",
    [b"HTTP/1.1 100 \r\n\r\n" * 1000, b"X: y\r\n" * 1000, b"x" * 65_536],
    ids=["interim responses", "headers", "one header"],
)
async def test_an_answer_whose_head_does_not_end_is_refused(tmp_path: Path, rest: bytes) -> None:
    first = b"" if rest.startswith(b"HTTP") else b"HTTP/1.1 200 OK\r\nX: "
    async with asyncio.timeout(60), answering(tmp_path, first, rest) as upstream:
        with pytest.raises(UpstreamUnavailable, match="does not answer"):
            async with WorkspacedClient().request(upstream, "GET", "/ports"):
                pass


async def test_chunks_of_a_byte_are_read_slowly_by_all_connections_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rate = 100
    monkeypatch.setattr(workspaced_client, "_SMALL_PARTS_PER_S", rate)
    loop, read = asyncio.get_running_loop(), 0

    async def download(upstream: Upstream) -> None:
        nonlocal read
        async with WorkspacedClient().request(upstream, "GET", "/files/x") as answer:
            async for _ in answer.body:
                read += 1

    async with asyncio.timeout(60), answering(tmp_path, OK, b"1\r\nx\r\n" * 1000) as upstream:
        begun = loop.time()
        downloads = [asyncio.create_task(download(upstream)) for _ in range(5)]
        while read < rate:
            await asyncio.sleep(0.01)
        # However slow this machine is: no more than the rate allows, and what each connection may begin with.
        assert read <= rate * (loop.time() - begun + 2 * workspaced_client._BURST_S) + len(downloads)
        for each in downloads:
            each.cancel()
        await asyncio.gather(*downloads, return_exceptions=True)


async def test_a_large_answer_in_ordinary_chunks_arrives_whole(tmp_path: Path) -> None:
    chunk = b"8000\r\n" + bytes(0x8000) + b"\r\n"
    async with asyncio.timeout(60), answering(tmp_path, OK + chunk * 500 + b"0\r\n\r\n", b"") as upstream:
        async with WorkspacedClient().request(upstream, "GET", "/files/x") as answer:
            assert sum([len(part) async for part in answer.body]) == 500 * 0x8000


async def test_a_build_does_not_wait_for_files_whose_answer_never_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waits in one of two slots for all users."""
    monkeypatch.setattr(build_files, "_ANSWER_TIMEOUT_S", 0.2)
    silent = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await silent.wait()
        writer.close()

    path = str(tmp_path / "helper.sock")
    async with asyncio.timeout(60), await asyncio.start_unix_server(serve, path):
        upstream = Upstream(str(tmp_path), socket_path=path, uid=os.getuid())
        with pytest.raises(UpstreamUnavailable, match="does not send app"):
            async with WorkspacedFiles().context(upstream, "app", 1 << 20):
                pass
        for read in (WorkspacedFiles().read, WorkspacedFiles().folder):
            with pytest.raises(UpstreamUnavailable, match="does not send app"):
                await read(upstream, "app", 1 << 20)
        monkeypatch.setattr(doors, "_JSON_TIMEOUT_S", 0.2)
        access = Doors(cast(Database, None), cast(Workspaces, None), {}, lambda: datetime.now(UTC))
        with pytest.raises(UpstreamUnavailable, match="does not answer"):
            await access.json(upstream, "GET", "/ports")
        assert not access.under_way
        silent.set()
    async with (
        asyncio.timeout(60),
        answering(tmp_path, b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nfile", b"") as there,
    ):
        async with WorkspacedFiles().context(there, "app", 1 << 20) as files:
            assert b"".join([part async for part in files]) == b"file"


Sending = Callable[[Upstream, AsyncIterator[bytes]], Awaitable[None]]


async def upload(upstream: Upstream, parts: AsyncIterator[bytes]) -> None:
    async with WorkspacedClient().request(upstream, "PUT", "/files/x", body=parts):
        pass


async def type_into_a_terminal(upstream: Upstream, parts: AsyncIterator[bytes]) -> None:
    async with WorkspacedClient().stream(upstream, "/terminals/x/attach") as stream:
        assert isinstance(stream, ByteStream)
        async for part in parts:
            await stream.write(part)


async def answer_on_the_link(upstream: Upstream, parts: AsyncIterator[bytes]) -> None:
    async with WorkspacedLinks().open(upstream) as stream:
        assert stream is not None
        async for part in parts:
            await stream.send({"answer": 1, "value": part.decode()})


@pytest.mark.parametrize("send", [upload, type_into_a_terminal, answer_on_the_link])
async def test_what_a_workspace_does_not_read_keeps_nothing_open(tmp_path: Path, send: Sending) -> None:
    """A term of the coordinator ends when its links have ended, and an upload when its client has left."""
    sent, over = 0, asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if b"Upgrade" in await reader.readuntil(b"\r\n\r\n"):
            writer.write(
                b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: codehub-stream\r\n\r\n"
            )
        await over.wait()
        writer.close()

    async def parts() -> AsyncIterator[bytes]:
        nonlocal sent
        while True:
            sent += 1
            yield bytes(65_536)

    path = str(tmp_path / "helper.sock")
    async with asyncio.timeout(60), await asyncio.start_unix_server(serve, path):
        sending = asyncio.ensure_future(send(Upstream(str(tmp_path), socket_path=path, uid=os.getuid()), parts()))
        before = -1
        while before != sent or not sent:  # until the buffers are full
            before = sent
            await asyncio.sleep(0.2)
        sending.cancel()
        await asyncio.wait({sending}, timeout=20)
        ended = sending.done()
        over.set()
        with contextlib.suppress(asyncio.CancelledError, UpstreamUnavailable):
            await sending
        assert ended
