"""HTTP/1.1 on one socket: reads requests strictly and within limits, and writes responses. Knows no routes and no sari.

Not the standard library's server, because every user of the machine can reach a loopback port: here the time and the
size of everything read from an unknown peer is bounded.
"""

from __future__ import annotations

import json
import re
import selectors
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import parse_qs, unquote, urlsplit

from sari.protocol.jsonrpc import parse

_LARGEST_HEAD: Final = 32 * 1024
LARGEST_BODY: Final = 8 * 1024 * 1024
# 8 MiB has 7 digits.
_LENGTH: Final = re.compile(r"[0-9]{1,12}")
# The time in which a client must finish sending a request.
_HEAD_S: Final = 15.0
_BODY_S: Final = 30.0
_WRITE_S: Final = 30.0
_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_REASONS: Final[Mapping[int, str]] = {
    200: "OK",
    202: "Accepted",
    204: "No Content",
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    406: "Not Acceptable",
    408: "Request Timeout",
    411: "Length Required",
    413: "Content Too Large",
    415: "Unsupported Media Type",
    421: "Misdirected Request",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    503: "Service Unavailable",
}
# The search page loads nothing from other origins and cannot be framed.
_ALWAYS: Final[Mapping[str, str]] = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class Rejected(Exception):
    """Raised when a request is invalid. The connection is closed after the error response."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status
        self.why = why


@dataclass(frozen=True, slots=True)
class Request:
    """One request. Header names are in lower case."""

    method: str
    path: str
    query: Mapping[str, list[str]]
    headers: Mapping[str, str]
    body: bytes
    keep_alive: bool
    # Whether the client has disconnected since it sent the request.
    gone: Callable[[], bool]

    def one(self, *names: str) -> str | None:
        """Return the first of these query parameters that is present."""
        return next((self.query[name][0] for name in names if self.query.get(name)), None)

    def json(self) -> object:
        try:
            return parse(self.body or b"null")
        except ValueError as error:
            raise Rejected(400, f"the body is not JSON ({error})") from error


@dataclass(frozen=True, slots=True)
class Response:
    """A response. With `stream`, that function writes the body, and the connection is closed after it."""

    status: int
    body: bytes = b""
    content_type: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)
    stream: Callable[[Callable[[bytes], None]], None] | None = None


def as_json(value: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    body = json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
    return Response(status, body + b"\n", headers=headers or {})


def problem(status: int, why: str, headers: Mapping[str, str] | None = None) -> Response:
    return as_json({"error": why}, status, headers)


@dataclass(slots=True)
class Connection:
    """Reads and writes on one accepted socket, in one thread."""

    sock: socket.socket
    idle_s: float
    # The size of a body that a request with these headers may have.
    largest_body: Callable[[Mapping[str, str]], int] = lambda headers: LARGEST_BODY
    _buffer: bytearray = field(default_factory=bytearray)

    def read_request(self) -> Request | None:
        """Return the next request; None if the client has disconnected or sends nothing."""
        head = self._read_head()
        if head is None:
            return None
        method, target, version, headers = _parse_head(head)
        if "transfer-encoding" in headers:
            raise Rejected(411, "send the body with Content-Length")
        length = headers.get("content-length", "0")
        if not _LENGTH.fullmatch(length):
            raise Rejected(400, "Content-Length is not a number")
        most = self.largest_body(headers)
        if int(length) > most:
            raise Rejected(413, f"the body is larger than {most} bytes")
        if headers.get("expect", "").lower() == "100-continue":
            self._send(b"HTTP/1.1 100 Continue\r\n\r\n")
        body = self._read_body(int(length))
        try:
            parts = urlsplit(target)
            query = parse_qs(parts.query, keep_blank_values=True, max_num_fields=100)
        except ValueError as error:
            raise Rejected(400, f"this is not the URL of a request ({error})") from error
        wanted = headers.get("connection", "").lower()
        keep_alive = "close" not in wanted and (version == "HTTP/1.1" or "keep-alive" in wanted)
        return Request(method, unquote(parts.path), query, headers, body, keep_alive, self.is_gone)

    def is_gone(self) -> bool:
        """Whether the client has disconnected. Data that it sent ahead stays unread."""
        with selectors.DefaultSelector() as selector:
            selector.register(self.sock, selectors.EVENT_READ)
            if not selector.select(0):
                return False
        try:
            return self.sock.recv(1, socket.MSG_PEEK) == b""
        except OSError:
            return True

    def write(self, response: Response, *, keep_alive: bool, head_only: bool = False) -> None:
        streaming = response.stream is not None
        lines = [f"HTTP/1.1 {response.status} {_REASONS.get(response.status, 'Unknown')}"]
        headers = {**_ALWAYS, **response.headers}
        if response.body or streaming:
            headers["Content-Type"] = response.content_type
        if not streaming and response.status != 204:
            headers["Content-Length"] = str(len(response.body))
        headers["Connection"] = "keep-alive" if keep_alive and not streaming else "close"
        lines += [f"{name}: {value}" for name, value in headers.items()]
        head = ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")
        self._send(head if head_only or streaming else head + response.body)
        if response.stream is not None and not head_only:
            response.stream(self._send)

    def _send(self, data: bytes) -> None:
        self.sock.settimeout(_WRITE_S)
        self.sock.sendall(data)

    def _read_head(self) -> bytes | None:
        deadline = time.monotonic() + (_HEAD_S if self._buffer else self.idle_s)
        while True:
            end = self._buffer.find(b"\r\n\r\n")
            if end >= 0:
                head = bytes(self._buffer[:end])
                del self._buffer[: end + 4]
                return head
            if len(self._buffer) > _LARGEST_HEAD:
                raise Rejected(431, f"the request's head is larger than {_LARGEST_HEAD} bytes")
            began = bool(self._buffer)
            more = self._receive(deadline)
            if not more:
                if began:
                    raise Rejected(408, "the request did not arrive whole")
                return None
            if not began:
                deadline = time.monotonic() + _HEAD_S

    def _read_body(self, length: int) -> bytes:
        deadline = time.monotonic() + _BODY_S
        while len(self._buffer) < length:
            if not self._receive(deadline):
                raise Rejected(408, "the request's body did not arrive whole")
        body = bytes(self._buffer[:length])
        del self._buffer[:length]
        return body

    def _receive(self, deadline: float) -> bool:
        """Read more bytes into the buffer. Returns False if the client has disconnected or the deadline has passed."""
        left = deadline - time.monotonic()
        if left <= 0:
            return False
        self.sock.settimeout(left)
        try:
            data = self.sock.recv(65536)
        except TimeoutError:
            return False
        self._buffer += data
        return bool(data)


def _parse_head(head: bytes) -> tuple[str, str, str, dict[str, str]]:
    first, *rest = head.decode("latin-1").split("\r\n")
    words = first.split(" ")
    if len(words) != 3 or not _TOKEN.fullmatch(words[0]) or not words[1].startswith("/"):
        raise Rejected(400, "this is not an HTTP request for a path")
    if words[2] not in ("HTTP/1.1", "HTTP/1.0"):
        raise Rejected(400, "only HTTP/1.1 is supported")
    headers: dict[str, str] = {}
    for line in rest:
        name, colon, value = line.partition(":")
        key = name.lower()
        if not colon or not _TOKEN.fullmatch(name) or "\n" in value or "\r" in value or "\0" in value:
            raise Rejected(400, "a header is malformed")
        if key in headers and key in _ONCE:
            raise Rejected(400, f"the header {name} is there twice")
        text = value.strip(" \t")
        headers[key] = f"{headers[key]}, {text}" if key in headers else text
    return words[0], words[1], words[2], headers


# If repeated, these headers could be interpreted differently by different readers.
_ONCE: Final = frozenset(
    {"host", "content-length", "authorization", "origin", "content-type", "mcp-session-id"}
    | {"mcp-protocol-version", "mcp-method", "mcp-name"}
)
