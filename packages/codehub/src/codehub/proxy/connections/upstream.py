"""Connections to one workspace's IDE: a pool of idle ones, and one exchange at a time on each.

An upstream belongs to an instance's identity. A new identity gets a new pool, so that a reused port never carries one
workspace's traffic to another. Knows nothing about access checks.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, cast

from codehub.adapters.workspace_socket import open_workspace_socket
from codehub.ports.instances import Upstream
from codehub.proxy.connections.keepalive import enable_keepalive
from codehub.proxy.connections.pace import Pace
from codehub.proxy.http1.framing import BodyScanner, ChunkedBody, EndlessBody, LengthBody
from codehub.proxy.http1.messages import BadMessage, RequestHead, ResponseHead
from codehub.proxy.http1.parser import MAX_HEAD, parse_response

if TYPE_CHECKING:
    from codehub.proxy.connections.client import ClientConnection

CONNECT_TIMEOUT_S: Final = 5.0
# Node closes an idle connection after 5 s; a connection that it is about to close must not be used.
IDLE_S: Final = 4.0
# A request that must not be repeated uses a connection that was in use recently, or a new one.
FRESH_S: Final = 1.0
MAX_IDLE: Final = 64
# 1xx responses to one request. Real servers send one or two, or one every few seconds of a long operation.
MAX_INTERIM: Final = 100
WRITE_HIGH: Final = 256 * 1024
MAX_ANSWERS: Final = 64  # cached heads per instance
MAX_KEPT_HEAD: Final = 2048
EVENT_STREAM: Final = b"text/event-stream"


class UpstreamConnection(asyncio.Protocol):
    """One connection. While `client` is set, an exchange is under way."""

    __slots__ = (
        "_body",
        "_decode",
        "_head",
        "_interim",
        "client",
        "closed",
        "holder",
        "idle_since",
        "method",
        "pace",
        "pool",
        "started",
        "transport",
        "uses",
    )

    def __init__(self, pool: UpstreamPool) -> None:
        self.pool = pool
        self.transport: asyncio.Transport
        self.client: ClientConnection | None = None
        self.method = b""
        self.uses = 0
        self.holder: object = None  # whose requests it carried
        self.idle_since = 0.0
        self.started = False  # the first byte of the response has arrived
        self.closed = False
        self._head = b""
        self._body: BodyScanner | None = None
        self._decode = False
        self._interim = 0
        self.pace: Pace | None = None  # for the client's workspace

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.transport.set_write_buffer_limits(high=WRITE_HIGH)
        self.pool.open.add(self)

    def begin(self, client: ClientConnection, request: RequestHead) -> None:
        """Start the next exchange for this client."""
        self.client = client
        self.holder = client.holder
        if self.pace is None and client.admission is not None:
            budget = client.admission.target.activity.scan_budget
            self.pace = Pace(budget, self.transport, self.data_received, self.pool.loop)
        self._interim = 0
        self.method = request.method
        self._decode = request.minor == 0
        self.started = False
        self.uses += 1

    def data_received(self, data: bytes) -> None:
        client = self.client
        if client is None:
            # Unsolicited data: it must not be treated as the answer to the next request.
            self.abandon()
            return
        if self.pace is not None and self.pace.holds(data):
            return
        self.started = True
        body = self._body
        try:
            if body is None:
                if not self._repeat(client, data):
                    self._read_head(client, data)
            else:
                self._read_body(client, body, data, 0, b"")
        except BadMessage as error:
            self.abandon()
            client.upstream_failed(error.message)

    def _repeat(self, client: ClientConnection, data: bytes) -> bool:
        """Forward a response whose head was parsed and mapped before. Returns False if it needs the full path."""
        end = data.find(b"\r\n\r\n") + 4
        known = self.pool.answers.get(data[:end])
        if known is None or self._head or not client.repeats(known.status):
            return False
        over = end + known.length
        if over == len(data):
            self.client = None
            self.pool.put(self)
            client.finish(known.head + data[end:])
        elif over < len(data):
            self._finish(client, known.head + data[end:over], surplus=True)
        else:
            self._body = LengthBody(over - len(data))
            client.deliver(known.head + data[end:])
        return True

    def _read_head(self, client: ClientConnection, data: bytes) -> None:
        if self._head:
            data = self._head + data
            self._head = b""
        while True:
            end = data.find(b"\r\n\r\n")
            if end < 0 or end > MAX_HEAD:
                if len(data) > MAX_HEAD:
                    raise BadMessage(502, "the upstream's head is too large")
                self._head = data
                return
            response = parse_response(data[:end])
            if response.status == 101:
                client.switch(self, response, data[end + 4 :])
                return
            if response.status >= 200:
                break
            self._interim += 1
            if self._interim > MAX_INTERIM:
                raise BadMessage(502, f"the upstream sent more than {MAX_INTERIM} interim responses")
            client.interim(response)
            data = data[end + 4 :]
            if not data:
                return
        self._body = body = self._body_of(response)
        head = client.respond(response, decode=self._decode and response.chunked)
        if not client.inserts and not client.sibling:
            self.pool.keep(data[: end + 4], head, response, self.method)
        if body is None:
            self._finish(client, head, surplus=len(data) > end + 4)
        else:
            self._read_body(client, body, data, end + 4, head)

    def _body_of(self, response: ResponseHead) -> BodyScanner | None:
        if self.method == b"HEAD" or response.status in (204, 304):
            return None
        if response.chunked:
            return ChunkedBody(502, decode=self._decode)
        if response.content_length < 0:
            response.close = True
            return EndlessBody()
        return LengthBody(response.content_length) if response.content_length else None

    def _read_body(self, client: ClientConnection, body: BodyScanner, data: bytes, at: int, head: bytes) -> None:
        end = body.feed(data, at)
        over = end >= 0
        if isinstance(body, ChunkedBody) and self.pace is not None:
            self.pace.charge(body.lines)
            body.lines = 0
        if isinstance(body, ChunkedBody) and body.decoded:
            piece = b"".join(body.decoded)
            body.decoded.clear()
        elif self._decode and isinstance(body, ChunkedBody):
            piece = b""
        elif at or (over and end < len(data)):
            piece = data[at:end] if over else data[at:]
        else:
            piece = data
        if over:
            self._finish(client, head + piece if head else piece, surplus=end < len(data))
        elif head:
            client.deliver(head + piece)
        else:
            client.deliver(piece)

    def _finish(self, client: ClientConnection, last: bytes, *, surplus: bool) -> None:
        """Complete the response. The connection returns to the pool unless it cannot be reused."""
        self._body = None
        self.client = None
        # Surplus data does not answer any request: never use it for the next one.
        if surplus or client.ends_upstream():
            self.abandon()
        else:
            self.pool.put(self)
        client.finish(last)

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True
        self.pool.discard(self)
        client = self.client
        if client is None:
            return
        self.client = None
        if isinstance(self._body, EndlessBody) and exc is None:
            client.finish(b"")
        else:
            client.upstream_lost(self)

    def pause_writing(self) -> None:
        if self.client is not None:
            self.client.hold()

    def resume_writing(self) -> None:
        if self.client is not None:
            self.client.go_on()

    def abandon(self) -> None:
        """Close the connection and abort its exchange."""
        self.client = None
        self.closed = True
        self.transport.abort()


@dataclass(frozen=True, slots=True)
class KnownAnswer:
    """A head as sent to the browser, and the length of the body that follows."""

    head: bytes
    length: int
    status: int


class UpstreamPool:
    """The connections to one instance."""

    def __init__(self, upstream: Upstream, loop: asyncio.AbstractEventLoop) -> None:
        self.upstream = upstream
        self.open: set[UpstreamConnection] = set()
        self.answers: dict[bytes, KnownAnswer] = {}  # by the bytes of their heads
        self._idle: list[UpstreamConnection] = []
        self.loop = loop
        self._retired = False

    def take(self, holder: object, *, repeatable: bool) -> UpstreamConnection | None:
        """Return the most recently used idle connection of this holder, unless it may be closing.

        Nobody gets a connection that carried the requests of somebody else: a server that does not read a request's body
        takes the rest of it for the beginning of the next request.
        """
        idle = self._idle
        oldest = self.loop.time() - (IDLE_S if repeatable else FRESH_S)
        for at in range(len(idle) - 1, -1, -1):
            connection = idle[at]
            if connection.idle_since <= oldest:
                return None
            if not connection.closed and (connection.holder is None or connection.holder == holder):
                del idle[at]
                return connection
        return None

    async def connect(self) -> UpstreamConnection:
        """Open a new connection. Raises OSError (also on a timeout)."""
        upstream = self.upstream
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            if upstream.socket_path:
                connected = await open_workspace_socket(upstream.socket_path, upstream.uid)
                _, protocol = await self.loop.create_unix_connection(lambda: UpstreamConnection(self), sock=connected)
            else:
                _, protocol = await self.loop.create_connection(
                    lambda: UpstreamConnection(self), upstream.host, upstream.port
                )
                enable_keepalive(protocol.transport.get_extra_info("socket"))
        return protocol

    def put(self, connection: UpstreamConnection) -> None:
        if connection.closed:
            return
        if self._retired or len(self._idle) >= MAX_IDLE:
            connection.abandon()
            return
        connection.idle_since = self.loop.time()
        self._idle.append(connection)

    def keep(self, raw: bytes, head: bytes, response: ResponseHead, method: bytes) -> None:
        """Cache a head by its bytes, unless it depends on the request or ends the connection."""
        bodiless = response.status in (204, 304)
        if (
            method == b"HEAD"
            or response.close
            or response.chunked
            or response.cookies
            or response.location is not None
            or (response.content_length < 0 and not bodiless)
            or b"\r\nConnection: " in head
            or EVENT_STREAM in head
            or len(raw) > MAX_KEPT_HEAD
        ):
            return
        if len(self.answers) >= MAX_ANSWERS:
            self.answers.clear()
        self.answers[raw] = KnownAnswer(head, 0 if bodiless else response.content_length, response.status)

    def discard(self, connection: UpstreamConnection) -> None:
        self.open.discard(connection)
        if connection in self._idle:
            self._idle.remove(connection)

    def sweep(self) -> None:
        """Close connections that were idle for too long."""
        oldest = self.loop.time() - IDLE_S
        while self._idle and self._idle[0].idle_since < oldest:
            self._idle.pop(0).abandon()

    def close(self) -> None:
        """Close all connections immediately, including those in use."""
        self._retired = True
        for connection in list(self.open):
            connection.abandon()

    def retire(self) -> None:
        """Accept no new exchanges, because the instance was replaced. Current exchanges finish."""
        self._retired = True
        while self._idle:
            self._idle.pop().abandon()
