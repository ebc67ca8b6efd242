"""Answers at the address of a transfer's pod that are somebody else's: a workspace may have got the address meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
from collections.abc import AsyncIterator

import pytest

from codehub.adapters.kubernetes.transfer import Transfer
from codehub.domain.errors import CodeHubError, Terminal, Transient

RESULT = {"sha256": "0" * 64, "bytes": 1, "tar_bytes": 2, "entries": 3}


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
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield Transfer(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", "secret", "pod"), sent


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
