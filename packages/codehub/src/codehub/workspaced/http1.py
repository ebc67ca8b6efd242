"""A small HTTP/1.1 server on raw non-blocking sockets: heads, bodies, keep-alive, and connections that are handed over.

Uses raw sockets instead of asyncio's transports, because an accepted connection becomes the standard input of `sshd` and
every byte that was read ahead must be known. Bounded: heads by size and time, bodies by the handler's limit.
"""

from __future__ import annotations

import asyncio
import contextlib
import http
import json
import select
import socket
from collections.abc import AsyncIterator
from typing import NamedTuple
from urllib.parse import parse_qsl, unquote_to_bytes

from .errors import RequestError, invalid, too_large

_LONGEST_HEAD = 32 << 10
_HEAD_TIMEOUT_S = 30.0
_IDLE_TIMEOUT_S = 300.0  # of a keep-alive connection without a request
_LINGER_TIMEOUT_S = 30.0
_READ = 256 << 10
LONGEST_JSON = 16 << 20
_REASONS = {status.value: status.phrase for status in http.HTTPStatus}


class Connection:
    """An accepted socket and the bytes read ahead from it."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self._loop = asyncio.get_running_loop()
        self._ahead = bytearray()
        self.given_away = False

    @property
    def read_ahead(self) -> bytes:
        return bytes(self._ahead)

    async def read_head(self) -> bytes | None:
        """Return one request's head without its blank line, or None if the peer closed between two requests."""
        timeout = _IDLE_TIMEOUT_S if not self._ahead else _HEAD_TIMEOUT_S
        while True:
            end = self._ahead.find(b"\r\n\r\n")
            if end >= 0:
                head = bytes(self._ahead[:end])
                del self._ahead[: end + 4]
                return head
            if len(self._ahead) > _LONGEST_HEAD:
                raise RequestError(400, "INVALID_REQUEST", "the request's head is too long")
            try:
                data = await asyncio.wait_for(self._loop.sock_recv(self.sock, 16 << 10), timeout)
            except asyncio.TimeoutError:
                return None
            if not data:
                return None
            timeout = _HEAD_TIMEOUT_S
            self._ahead += data

    async def read(self, most: int = _READ) -> bytes:
        if self._ahead:
            data = bytes(self._ahead[:most])
            del self._ahead[:most]
            return data
        return await self._loop.sock_recv(self.sock, most)

    async def read_line(self) -> bytes:
        while True:
            end = self._ahead.find(b"\r\n")
            if end >= 0:
                line = bytes(self._ahead[:end])
                del self._ahead[: end + 2]
                return line
            if len(self._ahead) > 4096:
                raise invalid("a chunk's head is too long")
            data = await self._loop.sock_recv(self.sock, _READ)
            if not data:
                raise ConnectionResetError("the request ended in the middle of its body")
            self._ahead += data

    async def write(self, data: bytes) -> None:
        await self._loop.sock_sendall(self.sock, data)

    async def linger(self) -> None:
        """Discard what the peer still sends, so that it can read the answer: closing now would reset the connection."""
        with contextlib.suppress(OSError, asyncio.TimeoutError):
            self.sock.shutdown(socket.SHUT_WR)
            await asyncio.wait_for(self._discard(), _LINGER_TIMEOUT_S)

    async def _discard(self) -> None:
        while await self._loop.sock_recv(self.sock, _READ):
            pass

    async def closed_by_peer(self) -> None:
        """Return when the peer has disconnected. Bytes of a next request end the watch: then it never returns."""
        while True:
            await readable(self.sock.fileno())
            try:
                if self.sock.recv(1, socket.MSG_PEEK):
                    await asyncio.Event().wait()
            except BlockingIOError:
                continue
            except OSError:
                pass
            return


async def readable(fd: int) -> None:
    """Return when a descriptor is readable (a pidfd: when its process has ended)."""
    loop = asyncio.get_running_loop()
    done = loop.create_future()
    loop.add_reader(fd, lambda: None if done.done() else done.set_result(None))
    try:
        await done
    finally:
        loop.remove_reader(fd)


def is_readable(fd: int) -> bool:
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(0))


class Request(NamedTuple):
    method: str
    path: str  # raw, still percent-encoded
    query: dict[str, str]
    headers: dict[str, str]
    connection: Connection

    @property
    def keep_alive(self) -> bool:
        return self.headers.get("connection", "").lower() != "close"

    def upgrades_to(self, protocol: str) -> bool:
        return self.headers.get("upgrade", "").lower() == protocol

    @property
    def has_body(self) -> bool:
        return "transfer-encoding" in self.headers or self.headers.get("content-length", "0") != "0"

    async def body(self) -> AsyncIterator[bytes]:
        """Yield the body as it arrives. Raises ConnectionResetError if the connection ends too early."""
        connection = self.connection
        if self.headers.get("transfer-encoding", "").lower() == "chunked":
            while True:
                size = _number(await connection.read_line(), 16)
                left = size
                while left:
                    data = await connection.read(min(left, _READ))
                    if not data:
                        raise ConnectionResetError("the request ended in the middle of its body")
                    left -= len(data)
                    yield data
                if await connection.read_line() and size:
                    raise invalid("a chunk is longer than it says")
                if not size:
                    return
        left = _number(self.headers.get("content-length", "0").encode(), 10)
        while left:
            data = await connection.read(min(left, _READ))
            if not data:
                raise ConnectionResetError("the request ended in the middle of its body")
            left -= len(data)
            yield data

    async def json(self) -> dict[str, object]:
        whole = bytearray()
        async for part in self.body():
            whole += part
            if len(whole) > LONGEST_JSON:
                raise too_large(f"the request is longer than {LONGEST_JSON >> 20} MiB")
        try:
            value = json.loads(whole or b"{}")
        except (ValueError, RecursionError):
            raise invalid("the request's body is not JSON") from None
        if not isinstance(value, dict):
            raise invalid("the request's body is not a JSON object")
        return value


class Response(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes | AsyncIterator[bytes]


def as_json(value: object, status: int = 200) -> Response:
    return Response(status, {"Content-Type": "application/json"}, json.dumps(value).encode())


def as_error(error: RequestError) -> Response:
    return as_json({"error": {"code": error.code, "message": error.message}}, error.status)


def parse_head(head: bytes, connection: Connection) -> Request:
    lines = head.decode("latin-1").split("\r\n")
    words = lines[0].split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/1.") or not words[1].startswith("/"):
        raise invalid("not an HTTP/1.1 request")
    headers: dict[str, str] = {}
    for line in lines[1:]:
        name, colon, value = line.partition(":")
        if not colon or name != name.strip():
            raise invalid("a header is malformed")
        headers[name.lower()] = value.strip()
    if "transfer-encoding" in headers and "content-length" in headers:
        raise invalid("a request has one length")
    path, _, query = words[1].partition("?")
    pairs: list[tuple[str, str]] = parse_qsl(query, keep_blank_values=True, errors="surrogateescape")
    return Request(words[0], path, dict(pairs), headers, connection)


def decoded(segment: str) -> bytes:
    """Decode a path's percent-encoding to bytes, because file names are bytes."""
    return unquote_to_bytes(segment)


def response_head(response: Response, keep_alive: bool) -> bytes:
    headers = dict(response.headers)
    if isinstance(response.body, bytes):
        if response.status not in (101, 204):
            headers["Content-Length"] = str(len(response.body))
    elif "Content-Length" not in headers:
        headers["Transfer-Encoding"] = "chunked"
    if response.status != 101:
        headers["Connection"] = "keep-alive" if keep_alive else "close"
    lines = [f"HTTP/1.1 {response.status} {_REASONS.get(response.status, 'Status')}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1", "replace")


async def send(connection: Connection, response: Response, keep_alive: bool, head_only: bool) -> bool:
    """Send a response, and return whether the connection can carry another request."""
    head = response_head(response, keep_alive)
    if isinstance(response.body, bytes):
        await connection.write(head if head_only else head + response.body)
        return keep_alive
    body = response.body
    try:
        await connection.write(head)
        if head_only:
            return keep_alive
        chunked = "Content-Length" not in response.headers
        async for part in body:
            if part:
                await connection.write(b"%x\r\n%b\r\n" % (len(part), part) if chunked else part)
        if chunked:
            await connection.write(b"0\r\n\r\n")
    finally:
        with contextlib.suppress(Exception):
            await body.aclose()  # type: ignore[attr-defined]
    return keep_alive


def _number(text: bytes, base: int) -> int:
    digits = text.split(b";")[0].strip()
    if not digits or len(digits) > 16 or not digits.isalnum():
        raise invalid("a length is malformed")
    try:
        return int(digits, base)
    except ValueError:
        raise invalid("a length is malformed") from None
