"""An API server, or whatever is at its address, that answers nonsense: an error of ours each time, and never an object."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from codehub.adapters.kubernetes.client import ApiClient
from codehub.adapters.kubernetes.instances import usage_of
from codehub.adapters.kubernetes.kubeconfig import ClusterAccess
from codehub.adapters.kubernetes.quantity import quantity
from codehub.domain.errors import BackendDown, CodeHubError


@contextlib.asynccontextmanager
async def answering(status: str, head: str, body: bytes) -> AsyncIterator[ApiClient]:
    connections: list[asyncio.Task[None] | None] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(asyncio.current_task())
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(f"HTTP/1.1 {status}\r\nconnection: close\r\n{head}\r\n".encode("latin-1") + body)
            await writer.drain()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        client = ApiClient(ClusterAccess(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"))
        try:
            yield client
        finally:
            await client.close()
            await asyncio.gather(*filter(None, connections))


@pytest.mark.parametrize(
    ("status", "head", "body"),
    [
        ("500 No", "", b"[" * 60_000),
        ("500 No", "", b'{"kind": "Status", "code": 1e999}'),
        ("500 No", "", b'{"kind": "Status", "code": %s}' % (b"9" * 5_000)),
        ("500 No", "", b'{"kind": "Status", "code": [], "message": "\\ud800"}'),
        ("429 No", "retry-after: 0\r\n", b"\xff"),
        ("302 Found", "location: https://login.example/\r\n", b""),
        ("302 Found", "", b'{"kind": "Pod"}'),
        ("200 OK", "", b"[" * 60_000),
        ("200 OK", "", b"9" * 5_000),
    ],
    ids=[
        "deep",
        "infinite",
        "digits",
        "types",
        "busy",
        "redirect",
        "redirect with an object",
        "deep object",
        "number",
    ],
)
async def test_an_answer_that_means_nothing_is_an_error_of_ours(status: str, head: str, body: bytes) -> None:
    async with answering(status, head, body) as client:
        for call in (client.get("/x"), client.create("/x", {}), client.delete("/x", "uid"), client.patch("/x", {})):
            with pytest.raises(CodeHubError):
                await call
        if not status.startswith("200"):  # the content of a stream is its caller's
            with pytest.raises(CodeHubError):
                await streamed(client)


async def streamed(client: ApiClient) -> None:
    async with client.stream("/x", {}, read_timeout_s=60) as pieces:
        async for _ in pieces:
            pass


async def test_a_pause_that_is_no_number_is_one_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("codehub.adapters.kubernetes.client._LONGEST_PAUSE_S", 0.0)
    for pause in ("\u00b2", "9" * 400, "soon"):
        async with answering("429 Busy", f"retry-after: {pause}\r\n", b"{}") as client:
            with pytest.raises(BackendDown):
                await client.get("/x")


async def test_a_version_that_is_no_number_is_read_as_none() -> None:
    async with answering("200 OK", "", b'{"major": "one", "minor": "31+"}') as client:
        assert await client.version() == (0, 31)


def test_a_usage_that_cannot_be_read_is_none() -> None:
    good = {"containers": [{"usage": {"cpu": "250m", "memory": "1Mi"}}, {"usage": {"memory": "1Pi"}}]}
    assert usage_of(good, 1.0) == {"cpu_percent": 25.0, "memory_bytes": 2**20 + 2**50, "memory_limit_bytes": 1.0}
    usages: list[object] = [{"cpu": "x"}, {"cpu": "nan"}, {"cpu": "1e999"}, {"memory": 7}, {"cpu": None}, [], None]
    for usage in usages:
        assert usage_of({"containers": [{"usage": usage}]}, 1.0) is None, usage
    lists: list[object] = [[], None, 7, [{}], ["x"], "x"]
    for containers in lists:
        assert usage_of({"containers": containers}, 1.0) is None, containers


def test_quantities_of_all_sizes_are_read() -> None:
    assert [quantity(text) for text in ("250m", "4Gi", "1e3", "2E", "1Ei", "0")] == [
        0.25,
        4 << 30,
        1e3,
        2e18,
        2**60,
        0,
    ]
    for text in ("", "nan", "inf", "-inf", "1e400", "x", "1e305Ti"):
        with pytest.raises(ValueError):
            quantity(text)
