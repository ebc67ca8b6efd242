"""The response side of a browser connection: responses from upstream, local answers, termination, back-pressure.

The upstream side calls this half of a connection. `client` reads and forwards requests.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Coroutine
from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING, Any, Final, cast

from codehub.domain.body_pace import PAUSE_S
from codehub.domain.connection_cap import UNIX_PEER
from codehub.proxy.admission.decision import Admission, Reply, refusal
from codehub.proxy.connections.pace import Pace
from codehub.proxy.connections.upstream import EVENT_STREAM, WRITE_HIGH, UpstreamConnection
from codehub.proxy.http1.framing import BodyScanner
from codehub.proxy.http1.headers import allow_origin, response_lines, wants_prefix
from codehub.proxy.http1.messages import RequestHead, ResponseHead
from codehub.proxy.tab import is_plain_page

if TYPE_CHECKING:
    from codehub.proxy.server import ProxyServer

HEAD_TIMEOUT_S: Final = 15.0  # from the first byte of a head to its last: slower means an attack or a dead connection
KEEP_ALIVE_S: Final = 75.0
STALLED_S: Final = 120.0  # a client that reads nothing for this long is dead
LINGER_S: Final = 5.0
FIRST_REQUEST_S: Final = 1.0  # how long a new connection may take to send something while the proxy shuts down


class Exchange(asyncio.Protocol):
    """`request` is the one being answered; while it is None, the connection waits for a head."""

    __slots__ = (
        "_admission",
        "_block",
        "_body",
        "_buffer",
        "_closing",
        "_cookies",
        "_counts",
        "_ended",
        "_ends_upstream",
        "_insertion",
        "_lingering",
        "_pace",
        "_responded",
        "_retried",
        "_sent",
        "_server",
        "_task",
        "_unread",
        "deadline",
        "fresh",
        "peer",
        "request",
        "sibling",
        "started_at",
        "transport",
        "upstream",
    )

    def __init__(self, server: ProxyServer) -> None:
        self._server = server
        self.transport: asyncio.Transport
        self.peer = b""
        self.request: RequestHead | None = None
        self.upstream: UpstreamConnection | None = None
        self.deadline = inf
        self.fresh = True  # no request received yet
        self.started_at = 0.0
        self._buffer = b""
        self._block = b""  # the headers, as received, of a request that is being decided
        self._body: BodyScanner | None = None  # of the request, while it is incomplete
        self._cookies: list[bytes] = []
        self._admission: Admission | None = None
        self._task: asyncio.Task[None] | None = None
        self._sent = b""  # the head as sent upstream, while it may have to be sent again
        self._retried = False
        self._responded = False
        self._ends_upstream = False
        self.sibling = b""  # the origin of another port of the workspace, if its page sent this request
        self._counts: bool | None = False  # whether this exchange's bytes are activity; None: not determined yet
        self._insertion = b""  # put in front of the response's body if it is an IDE's page
        self._lingering = False
        self._pace: Pace | None = None  # of chunked bodies
        self._closing = False
        self._ended = False  # the client has finished sending
        self._unread = False  # the client does not read what was written

    @property
    def admission(self) -> Admission | None:
        return self._admission

    @property
    def holder(self) -> object:
        """Whose requests these are. A link has many holders, so what it opens is for this connection alone."""
        admission = self._admission
        return self if admission is None or admission.by_link else admission.credential

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.transport.set_write_buffer_limits(high=WRITE_HIGH)
        address = transport.get_extra_info("peername")
        if isinstance(address, tuple):
            self.peer = address[0].encode()
        else:
            # A connection of the Unix socket, or one that was reset already.
            sock = transport.get_extra_info("socket")
            is_unix = sock is not None and sock.family == socket.AF_UNIX
            self.peer = UNIX_PEER.encode() if is_unix else b"0.0.0.0"
        self.deadline = self._server.clock.now + (FIRST_REQUEST_S if self._server.draining else HEAD_TIMEOUT_S)
        if not self._server.join(self):
            self.transport.abort()

    # ── the response, called by the upstream connection ──────────────────────────────────────────────────────────

    def interim(self, response: ResponseHead) -> None:
        """Forward a 1xx response. HTTP/1.0 does not know them."""
        if self.request is not None and self.request.minor == 1 and response.status != 101:
            out = [b"HTTP/1.1 %d %b" % (response.status, response.reason), *response.lines, b"\r\n"]
            self.transport.write(b"\r\n".join(out))

    def respond(self, response: ResponseHead, *, decode: bool) -> bytes:
        """Return the head for the browser. The caller sends it with the first part of the body."""
        request = self.request
        admission = self._admission
        assert request is not None
        assert admission is not None
        self._responded = True
        self._ends_upstream = response.close or self._body is not None
        self._server.metrics.count(response.status)
        rewrite = admission.target.rewrite
        if response.location is not None and wants_prefix(response, rewrite, request.target):
            # The browser follows the redirect, and the next request keeps the prefix.
            admission.target.rewrite = replace(rewrite, strip=False)
            admission.fresh_until = 0.0
        out = response_lines(response, rewrite, request.fields.host)
        insertion = self._insertion if self._insertion and is_plain_page(response) else b""
        if self.sibling:
            out = allow_origin(out, self.sibling)
        bodiless = request.method == b"HEAD" or response.status in (204, 304)
        endless = not bodiless and not response.chunked and response.content_length < 0
        if response.content_length >= 0 and not decode:
            out.append(b"Content-Length: %d" % (response.content_length + len(insertion)))
        elif response.chunked and not decode and not (bodiless and response.status == 204):
            out.append(b"Transfer-Encoding: chunked")
        if endless or decode or self._server.draining or self._body is not None:
            request.keep_alive = False
        if not request.keep_alive:
            out.append(b"Connection: close")
        elif request.minor == 0:
            out.append(b"Connection: keep-alive")
        out.append(b"\r\n")
        head = b"\r\n".join(out)
        # An event stream's heartbeat is not activity; a download is.
        if EVENT_STREAM in head:
            self._counts = False
        if insertion:
            head += b"%x\r\n%b\r\n" % (len(insertion), insertion) if response.chunked else insertion
        return head

    @property
    def inserts(self) -> bool:
        """Whether the response's head is for this request alone."""
        return bool(self._insertion)

    def repeats(self, status: int) -> bool:
        """Return whether the cached head for the same bytes may be used for this response."""
        request = self.request
        if (
            request is None
            or self._insertion
            or not request.keep_alive
            or request.minor != 1
            or request.method == b"HEAD"
            or self._body is not None
            or self._server.draining
            or self.sibling
        ):
            return False
        self._responded = True
        self._server.metrics.by_class[status // 100] += 1
        return True

    def deliver(self, data: bytes) -> None:
        if data:
            self.transport.write(data)
            self._flowed()

    def _flowed(self) -> None:
        """Record that bytes of this exchange passed. Checks whether they are activity only if that changes anything."""
        admission = self._admission
        if admission is None or self._counts is False:
            return
        target = admission.target
        if self._server.clock.now < target.activity.quiet_at:
            return
        if self._counts is None and self.request is not None:
            path = self.request.target[len(target.rewrite.prefix) :].partition(b"?")[0]
            self._counts = not target.background.is_request(self.request.method, path)
        if self._counts:
            target.activity.touch()

    def ends_upstream(self) -> bool:
        return self._ends_upstream or self._body is not None

    def finish(self, last: bytes) -> None:
        """Complete the response: continue with the next request, or close."""
        # First, so that a browser that reads slowly does not pause a connection that is somebody else's by now.
        self.upstream = None
        if last:
            self.transport.write(last)
        request = self.request
        self.request = None
        self._sent = b""
        if self._body is not None:
            self._linger()
        elif request is None or not request.keep_alive or self._closing or self._server.draining:
            self._close()
        else:
            self._next()

    def _read_buffered(self) -> None:
        """Process the next request from buffered data."""

    def _next(self) -> None:
        if self._unread:
            # Its next request waits too: otherwise a client that only asks fills the memory.
            self.transport.pause_reading()
            return
        self.deadline = self._server.clock.now + KEEP_ALIVE_S
        if self._buffer:
            # Not called directly, so that pipelined requests do not deepen the stack.
            self._server.loop.call_soon(self._read_buffered)
        self.transport.resume_reading()

    def upstream_failed(self, why: str) -> None:
        self.upstream = None
        if self._responded or self.request is None:
            self.transport.abort()
        else:
            self._reply(refusal(502, why))

    # ── local answers, termination, back-pressure ────────────────────────────────────────────────────────────────

    def _reply(self, reply: Reply) -> None:
        request = self.request
        self._responded = True
        self._server.metrics.count(reply.status)
        unread = self._body is not None
        close = unread or request is None or not request.keep_alive or self._closing or self._server.draining
        self.transport.write(reply.encoded(close=close, head_only=request is not None and request.method == b"HEAD"))
        self.request = None
        self.upstream = None
        if unread or (close and self._buffer):
            self._linger()
        elif close:
            self._close()
        else:
            self._next()

    def _refuse(self, status: int, message: str) -> None:
        """Reject a malformed message. Nothing that follows on this connection can be trusted."""
        self._server.metrics.refused += 1
        self._buffer = b""
        if self.request is not None:
            self.request.keep_alive = False
        self.transport.write(refusal(status, message).encoded(close=True, head_only=False))
        self.request = None
        self._linger()

    def _linger(self) -> None:
        """Close without losing written data: closing with unread bytes resets the connection."""
        self._body = None
        self._buffer = b""
        self._lingering = True
        self.deadline = self._server.clock.now + LINGER_S
        self.transport.resume_reading()
        if self.transport.can_write_eof() and not self.transport.is_closing():
            self.transport.write_eof()

    def _close(self) -> None:
        self.deadline = self._server.clock.now + STALLED_S
        self.transport.close()

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        self._task = self._server.start(work, self)

    def failed(self) -> None:
        """Handle an unexpected error in a task of this connection. The server logs it."""
        if not self.transport.is_closing() and self.request is not None and not self._responded:
            self._reply(refusal(500, "something went wrong in the proxy; its log says what"))
        else:
            self.transport.abort()

    def hold(self) -> None:
        if self._pace is not None:
            self._pace.block()
        else:
            self.transport.pause_reading()

    def go_on(self) -> None:
        if self._body is not None:
            # The workspace was slow, not the client.
            self.deadline = self._server.clock.now + PAUSE_S
        if self._pace is not None:
            self._pace.unblock()
        else:
            self.transport.resume_reading()

    def pause_writing(self) -> None:
        self._unread = True
        self.deadline = self._server.clock.now + STALLED_S
        if self.upstream is not None and self.upstream.pace is not None:
            self.upstream.pace.block()

    def resume_writing(self) -> None:
        self._unread = False
        if self.transport.is_closing() or self._lingering:
            self.deadline = self._server.clock.now + STALLED_S
            return
        if self.request is None:
            self._next()
            return
        self.deadline = inf if self._body is None else self._server.clock.now + PAUSE_S
        if self.upstream is not None and self.upstream.pace is not None:
            self.upstream.pace.unblock()

    def expire(self) -> None:
        """Handle an expired deadline. Called by the server's sweep."""
        self.deadline = inf
        if self.request is None and self._buffer and not self._lingering and not self._unread:
            self._refuse(408, "the head took too long")
        elif self._body is not None and not self._responded and self.request is not None:
            if self.upstream is not None:
                self.upstream.abandon()
                self.upstream = None
            self._refuse(408, "the body stopped, or came too slowly")
        else:
            self.transport.abort()

    def leave_when_done(self) -> None:
        """On shutdown: finish the current exchange, then close."""
        self._closing = True
        if self.request is not None or self._buffer:
            return
        if self.fresh:
            # Just accepted: its first request is on its way, and the client may not retry it.
            self.deadline = min(self.deadline, self._server.clock.now + FIRST_REQUEST_S)
        else:
            self.transport.close()

    def revoke(self) -> None:
        self.transport.abort()

    def eof_received(self) -> bool:
        """A client that has finished sending may still wait for its answer."""
        if self.request is None or self._body is not None:
            return False
        self._closing = self._ended = True
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        self._server.leave(self)
        self._closing = True
        self.deadline = inf
        self.request = None
        if self._task is not None:
            self._task.cancel()
        if self.upstream is not None:
            self.upstream.abandon()
            self.upstream = None
