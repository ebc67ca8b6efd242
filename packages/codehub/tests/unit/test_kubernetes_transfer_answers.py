"""Answers at the address of a transfer's pod that are somebody else's: a workspace may have got the address meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace

import pytest

from codehub.adapters.kubernetes.transfer_client import Transfer
from codehub.adapters.objectstore.layout import Meta
from codehub.domain import errors
from codehub.domain.errors import CodeHubError, OutOfSpace, Terminal, Transient

RESULT = {"sha256": "0" * 64, "bytes": 1, "tar_bytes": 2, "entries": 3}


Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@contextlib.asynccontextmanager
async def listening(serve: Serve) -> AsyncIterator[str]:
    """A server's address. All of its connections have ended when this does."""
    connections: list[asyncio.Task[None] | None] = []

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(asyncio.current_task())
        try:
            await serve(reader, writer)
        finally:
            writer.close()

    async with await asyncio.start_server(handle, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        await asyncio.gather(*filter(None, connections))


@contextlib.asynccontextmanager
async def answering(body: bytes, head: str = "", status: str = "200 OK") -> AsyncIterator[tuple[Transfer, list[int]]]:
    """A pod with this answer, and how many bytes of it were taken."""
    sent: list[int] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(f"HTTP/1.1 {status}\r\nconnection: close\r\n{head}\r\n".encode())
            for at in range(0, len(body), 1 << 16):
                writer.write(body[at : at + (1 << 16)])
                await writer.drain()
                sent.append(1 << 16)

    async with listening(serve) as address:
        yield Transfer(address, "secret", "pod"), sent


async def failed(body: bytes, **more: str) -> CodeHubError:
    async with answering(body, **more) as (transfer, _):
        with pytest.raises(CodeHubError) as caught:
            await transfer.result()
    return caught.value


async def test_the_result_of_the_pod_itself_is_read() -> None:
    async with answering(json.dumps(RESULT).encode()) as (transfer, _):
        meta = await transfer.result()
    assert (meta.sha256, meta.size, meta.tar_bytes, meta.entries) == ("0" * 64, 1, 2, 3)
    error = await failed(json.dumps({"error": "Terminal", "message": "too deep"}).encode(), status="500 No")
    assert isinstance(error, Terminal)
    assert str(error) == "too deep"


@pytest.mark.parametrize(
    "body",
    [
        b"7",
        b"[" * 60_000,
        b"{}",
        json.dumps({**RESULT, "bytes": "1" * 5_000}).encode(),
        json.dumps({**RESULT, "entries": -1}).encode(),
        b'{"sha256": "0", "bytes": 1e999, "tar_bytes": 1, "entries": 1}',
        b'{"sha256": "0", "bytes": 1, "tar_bytes": %d, "entries": 1}' % 10**4_000,
        b"\xff",
    ],
    ids=["a number", "deep", "empty", "digits", "negative", "infinite", "large", "not text"],
)
async def test_any_other_answer_is_one_failed_attempt(body: bytes) -> None:
    assert type(await failed(body)) is Transient


@pytest.mark.parametrize("status", ["200 OK", "500 No"])
async def test_an_endless_answer_is_not_kept_in_memory(status: str) -> None:
    async with answering(bytes(64 << 20), status=status) as (transfer, sent):
        with pytest.raises(Transient):
            await transfer.result()
        assert sum(sent) < 32 << 20


async def test_a_compressed_answer_is_not_expanded() -> None:
    bomb = gzip.compress(json.dumps(RESULT).encode().ljust(1 << 20))
    assert type(await failed(bomb, head="content-encoding: gzip\r\n")) is Transient


async def test_a_message_can_be_stored_and_shown() -> None:
    said = {"error": "Transient", "message": "a\0b\ud800c" + "d" * 10_000}
    error = await failed(json.dumps(said).encode(), status="500 No")
    assert str(error).startswith("a b c")
    assert len(str(error)) <= 2_000


async def read(transfer: Transfer, most: int) -> int:
    taken = 0
    async with transfer.archive(most) as pieces:
        async for piece in pieces:
            taken += len(piece)
    return taken


async def test_an_archive_is_read_up_to_its_limit_and_no_further() -> None:
    async with answering(bytes(1 << 20)) as (transfer, _):
        assert await read(transfer, 1 << 20) == 1 << 20
    async with answering(bytes(64 << 20)) as (transfer, sent):
        with pytest.raises(OutOfSpace, match="CODEHUB_K8S_HOME_SIZE"):
            await read(transfer, 1 << 20)
        assert sum(sent) < 32 << 20


async def test_nothing_more_is_read_of_a_pod_that_is_gone() -> None:
    """Who got its address could send one byte every few minutes, and keep one of four places for archives for ever."""
    seen: list[int] = []

    def holds_its_address() -> bool:
        seen.append(1)
        return len(seen) < 3

    async with answering(bytes(64 << 20)) as (transfer, sent):
        with pytest.raises(Transient, match="it ended before"):
            await read(replace(transfer, holds_its_address=holds_its_address), 1 << 40)
        assert sum(sent) < 32 << 20


async def test_a_home_is_not_sent_on_to_who_got_the_pods_address() -> None:
    received = bytearray()
    there = True

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal there
        while b"first" not in received:
            received.extend(await reader.read(1 << 16))
        there = False
        got_first.set()
        with contextlib.suppress(OSError):
            while b"private" not in received and (piece := await reader.read(1 << 16)):
                received.extend(piece)

    async def home() -> AsyncIterator[bytes]:
        yield b"first"
        await got_first.wait()
        yield b"private"

    got_first = asyncio.Event()
    async with listening(serve) as address:
        transfer = Transfer(address, "secret", "pod", holds_its_address=lambda: there)
        with pytest.raises(Transient, match="it ended before"):
            await transfer.restore(home(), Meta("0" * 64, 1, 2, 3))
    assert b"first" in received
    assert b"private" not in received


@pytest.mark.parametrize(
    "name",
    [name for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, CodeHubError)],
)
async def test_no_error_of_a_pod_has_an_effect_beyond_its_workspace(name: str) -> None:
    """Deposed ends the coordinator's term, BackendDown opens the circuit of the whole cluster."""
    error = await failed(json.dumps({"error": name, "message": "x"}).encode(), status="500 No")
    assert type(error) in (Transient, Terminal, errors.OutOfSpace, errors.ArchiveCorrupted)


async def test_an_error_is_not_believed_of_a_pod_that_is_gone() -> None:
    said = json.dumps({"error": "Terminal", "message": "the home cannot be archived"}).encode()
    for status in ("200 OK", "500 No"):
        async with answering(said, status=status) as (transfer, _):
            with pytest.raises(Transient, match="it ended before"):
                await replace(transfer, holds_its_address=lambda: False).result()
