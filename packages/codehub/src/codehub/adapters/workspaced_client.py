"""An HTTP client for the `workspaced` of one start, or its IDE.

The workspace controls all answers: they are bounded and never trusted.

Uses one connection per request: a local connection costs microseconds, and a pool would outlive its start.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import ssl
import weakref
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import httpcore

from codehub.adapters.workspace_socket import open_workspace_socket
from codehub.domain.errors import UpstreamUnavailable
from codehub.ports.instances import Upstream

_CONNECT_TIMEOUT_S = 5.0
# Parsing blocks everybody's requests: 32 MB of empty lists take seconds. A thousand ports are 100 KB.
_LONGEST_JSON = 256 << 10
# Reading a chunk of one byte costs as much as one of 64 KB, and all users wait meanwhile. So do interim responses (1xx).
_LONGEST_HEAD = 16 << 10
_SMALL_PART = 512
_SMALL_PARTS_PER_S = 2_000
_BURST_S = 0.05
_LARGE_PARTS = 4
STREAM = "codehub-stream"


@dataclass(frozen=True, slots=True)
class Answer:
    """A response whose body has not been read yet."""

    status: int
    headers: Mapping[str, str]
    body: AsyncIterator[bytes]

    async def read(self, most: int = _LONGEST_JSON) -> bytes:
        whole = bytearray()
        async for part in self.body:
            whole += part
            if len(whole) > most:
                raise UpstreamUnavailable("the workspace's answer is too long")
        return bytes(whole)


class ByteStream:
    """An upgraded connection: raw bytes in both directions."""

    def __init__(self, stream: httpcore.AsyncNetworkStream, budget: _Budget) -> None:
        self._stream = stream
        self._budget = budget
        self.large = budget.large  # to be held by who keeps much of what this workspace sent

    async def read(self, most: int = 256 << 10) -> bytes:
        try:
            data = await self._stream.read(most)
        except httpcore.NetworkError as error:
            raise ConnectionResetError(str(error)) from error
        await self.charge(len(data))
        return data

    async def charge(self, size: int) -> None:
        """Wait if the workspace sends too many small parts. Call it for each part that takes work of its own."""
        if size < _SMALL_PART:
            await self._budget.charge()

    async def write(self, data: bytes) -> None:
        try:
            await self._stream.write(data)
        except httpcore.NetworkError as error:
            raise ConnectionResetError(str(error)) from error


class WorkspacedClient:
    @contextlib.asynccontextmanager
    async def request(
        self,
        upstream: Upstream,
        method: str,
        target: str,
        headers: Mapping[str, str] | None = None,
        body: AsyncIterable[bytes] | bytes | None = None,
    ) -> AsyncIterator[Answer]:
        """Send a request.

        `target` is the percent-encoded path and query. Raises UpstreamUnavailable if there is no answer.
        """
        async with self._sent(upstream, method, target, headers or {}, body) as response:
            yield Answer(response.status, _headers(response), _parts(response, _budget_of(upstream)))

    @contextlib.asynccontextmanager
    async def stream(self, upstream: Upstream, target: str) -> AsyncIterator[ByteStream | Answer]:
        """Open an upgraded connection, or return the refusal."""
        headers = {"Connection": "Upgrade", "Upgrade": STREAM}
        async with self._sent(upstream, "GET", target, headers, None) as response:
            if response.status == 101:
                yield ByteStream(response.extensions["network_stream"], _budget_of(upstream))
            else:
                yield Answer(response.status, _headers(response), _parts(response, _budget_of(upstream)))

    async def listens(self, upstream: Upstream) -> bool:
        try:
            stream = await _Backend(upstream).connect_tcp("", 0)
        except httpcore.ConnectError:
            return False
        await stream.aclose()
        return True

    @contextlib.asynccontextmanager
    async def _sent(
        self,
        upstream: Upstream,
        method: str,
        target: str,
        headers: Mapping[str, str],
        body: AsyncIterable[bytes] | bytes | None,
    ) -> AsyncIterator[httpcore.Response]:
        url = httpcore.URL(scheme=b"http", host=b"workspaced", port=None, target=target.encode("ascii"))
        named = [(k.encode(), v.encode("latin-1")) for k, v in {"Host": "workspaced", **headers}.items()]
        if upstream.secret is not None:
            named.append((upstream.secret[0].encode(), upstream.secret[1].encode()))
        if isinstance(body, bytes):
            named.append((b"Content-Length", str(len(body)).encode()))
        elif body is not None and not any(name.lower() == b"content-length" for name, _ in named):
            named.append((b"Transfer-Encoding", b"chunked"))
        request, backend = httpcore.Request(method, url, headers=named, content=body), _Backend(upstream)
        try:
            async with httpcore.AsyncConnectionPool(network_backend=backend) as pool:
                response = await pool.handle_async_request(request)
                backend.reader.head_left = None
                try:
                    yield response
                finally:
                    await response.aclose()
        except (httpcore.NetworkError, httpcore.ProtocolError, httpcore.TimeoutException, OSError) as error:
            raise UpstreamUnavailable(
                "the workspace's helper (workspaced) does not answer; if this persists, restart the workspace"
            ) from error


async def decoded(answer: Answer) -> Any:
    """Read an answer to a request of CodeHub's own. A refusal raises UpstreamUnavailable with the workspace's message."""
    raw = await answer.read()
    try:
        value = json.loads(raw) if raw else None
    except (ValueError, RecursionError) as error:
        raise UpstreamUnavailable("the workspace's helper answered something else than JSON") from error
    if answer.status >= 400:
        raise UpstreamUnavailable(message_of(value))
    return value


def message_of(value: object) -> str:
    match value:
        case {"error": {"message": str(text)}}:
            return text[:1000]
        case _:
            return "the workspace's helper refused"


def _headers(response: httpcore.Response) -> dict[str, str]:
    return {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in response.headers}


class _Budget:
    """How many small parts all connections to one workspace may read, and how many large ones are kept at once."""

    def __init__(self) -> None:
        self._free_at = 0.0
        self.large = asyncio.Semaphore(_LARGE_PARTS)

    async def charge(self) -> None:
        now = asyncio.get_running_loop().time()
        self._free_at = max(self._free_at, now) + 1 / _SMALL_PARTS_PER_S
        if self._free_at > now + _BURST_S:
            await asyncio.sleep(self._free_at - now)


_budgets: weakref.WeakValueDictionary[str, _Budget] = weakref.WeakValueDictionary()


def _budget_of(upstream: Upstream) -> _Budget:
    return _budgets.setdefault(upstream.identity, _Budget())


async def _parts(response: httpcore.Response, budget: _Budget) -> AsyncIterator[bytes]:
    try:
        async for part in response.aiter_stream():
            if len(part) < _SMALL_PART:
                await budget.charge()
            yield part
    except (httpcore.NetworkError, httpcore.ProtocolError) as error:
        raise UpstreamUnavailable("the workspace's answer ended in the middle") from error


@dataclass(frozen=True, slots=True)
class _Backend(httpcore.AsyncNetworkBackend):
    """A network backend that connects to its one upstream, regardless of the requested host."""

    upstream: Upstream
    reader: _Reader = field(default_factory=lambda: _Reader())

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        try:
            async with asyncio.timeout(_CONNECT_TIMEOUT_S):
                return await self._connected()
        except (OSError, TimeoutError) as error:
            raise httpcore.ConnectError(str(error)) from error

    async def _connected(self) -> _Stream:
        upstream, loop, reader = self.upstream, asyncio.get_running_loop(), self.reader

        def protocol() -> asyncio.StreamReaderProtocol:
            return asyncio.StreamReaderProtocol(reader)

        transport: asyncio.Transport
        if upstream.socket_path:
            connected = await open_workspace_socket(upstream.socket_path, upstream.uid)
            transport, handler = await loop.create_unix_connection(protocol, sock=connected)
        else:
            transport, handler = await loop.create_connection(protocol, upstream.host, upstream.port)
            transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return _Stream(reader, asyncio.StreamWriter(transport, handler, reader, loop))


class _Reader(asyncio.StreamReader):
    """Knows whether the answer is a refusal, which may come before the request was sent completely."""

    refused: bool | None = None  # not known yet
    head_left: int | None = _LONGEST_HEAD  # None once the answer's head was read

    def feed_data(self, data: Any) -> None:
        if self.refused is None:
            self.refused = data.startswith((b"HTTP/1.1 4", b"HTTP/1.1 5"))
        super().feed_data(data)


@dataclass(frozen=True, slots=True)
class _Stream(httpcore.AsyncNetworkStream):
    reader: _Reader
    writer: asyncio.StreamWriter

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        left = self.reader.head_left
        if left is not None and left <= 0:
            raise httpcore.ReadError("the head of the answer is too long")
        try:
            data = await self.reader.read(max_bytes if left is None else min(max_bytes, left))
        except OSError as error:
            raise httpcore.ReadError(str(error)) from error
        if left is not None:
            self.reader.head_left = left - len(data)
        return data

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        if self.reader.refused:
            raise httpcore.WriteError("the request was refused before it was complete")
        try:
            self.writer.write(buffer)
            await self.writer.drain()
        except OSError as error:
            raise httpcore.WriteError(str(error)) from error

    async def aclose(self) -> None:
        # Closing would wait until the workspace has read the rest, which it may never do.
        if self.writer.transport.get_write_buffer_size():
            self.writer.transport.abort()
        self.writer.close()
        with contextlib.suppress(OSError):
            await self.writer.wait_closed()

    async def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.AsyncNetworkStream:
        raise NotImplementedError("a workspace is reached over plain Unix sockets and ports, never over TLS")

    def get_extra_info(self, info: str) -> Any:
        return self.writer.get_extra_info(info) if info != "is_readable" else False
