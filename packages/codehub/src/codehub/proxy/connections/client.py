"""One browser connection: reads requests, obtains a decision for each, and forwards it.

Request and response bytes flow independently and apply back-pressure to each other. Nothing awaits on the hot path: with a
cached decision and a pooled upstream, a request is one function call, and a request with the same headers as the last is
not even parsed again (`header_cache`).
"""

from __future__ import annotations

from math import inf
from typing import Final

from codehub.domain.body_pace import PAUSE_S, body_deadline
from codehub.domain.cookies import cookie_values
from codehub.domain.doors import is_sibling_port
from codehub.proxy.admission.decision import Admission, Reply
from codehub.proxy.connections.exchange import HEAD_TIMEOUT_S, Exchange
from codehub.proxy.connections.pace import Pace
from codehub.proxy.connections.tunnel import open_tunnel
from codehub.proxy.connections.upstream import UpstreamConnection
from codehub.proxy.http1.framing import ChunkedBody, LengthBody
from codehub.proxy.http1.header_cache import MAX_REPEATED, REQUEST_LINE, CachedHeaders
from codehub.proxy.http1.headers import (
    OWN_PARAMETERS,
    OWN_PATH,
    PORT_PATH,
    request_bytes,
    response_lines,
    split_cookies,
    wants_upgrade,
)
from codehub.proxy.http1.messages import BadMessage, RequestHead, ResponseHead
from codehub.proxy.http1.parser import MAX_HEAD, parse_request
from codehub.proxy.tab import is_document, without_encodings

MAX_WAITING: Final = 256 * 1024  # what a client may send ahead while its request is being decided
# Paths below a workspace's address that are not the IDE's: the proxy's own, and the ports', which are other targets.
_NOT_REPEATED: Final = (OWN_PATH, PORT_PATH)
_EMPTY_LINES: Final = b"\r\n" * 1024
_REPEATABLE: Final = frozenset({b"GET", b"HEAD", b"OPTIONS", b"PUT", b"DELETE"})


class ClientConnection(Exchange):
    """A browser connection. While `request` is None, it waits for a head."""

    __slots__ = ()

    def data_received(self, data: bytes) -> None:
        if self.request is None and not self._buffer and not self._lingering:
            cut = data.find(b"\r\n")
            # A request with a body is not looked up, because that would hash the body.
            cached = self._server.header_cache.known.get(data[cut:]) if len(data) < MAX_REPEATED else None
            if cached is None or not self._repeat(data[:cut], cached):
                self._read_head(data)
        elif self._body is not None and self.upstream is not None:
            if self._pace is None or not self._pace.holds(data):
                self._forward_body(data)
        elif self._lingering:
            return
        else:
            if self._buffer:
                data = self._buffer + data
            if self.request is None:
                self._read_head(data)
            else:
                self._buffer = data
                if len(data) > MAX_WAITING:
                    self.transport.pause_reading()

    # ── the request ──────────────────────────────────────────────────────────────────────────────────────────────

    def _repeat(self, line: bytes, cached: CachedHeaders) -> bool:
        """Forward a request whose headers were recently parsed and decided. Returns False if it needs the full path."""
        admission = cached.admission
        server = self._server
        now = server.clock.now
        if now > admission.fresh_until or cached.peer != self.peer:
            return False
        match = REQUEST_LINE(line)
        if match is None:
            return False
        method, target = match.groups()
        prefix = cached.prefix
        if not target.startswith(prefix) or OWN_PARAMETERS in target or target.startswith(_NOT_REPEATED, len(prefix)):
            return False
        connection = admission.target.pool.take(admission.credential, repeatable=True)
        if connection is None:
            return False
        if now > admission.renew_at:
            server.admitter.renew(admission)
        server.metrics.requests += 1
        self.request = request = RequestHead(method, target, 1, cached.fields)
        self.fresh = self._retried = self._responded = self._ends_upstream = False
        self.deadline = inf
        self.started_at = now
        self._cookies = cached.cookies
        self.sibling = b""  # requests of other origins are not repeated
        self._admission = admission
        self._insertion = b""
        self._counts = None
        if now >= admission.target.activity.quiet_at:
            self._flowed()
        self._sent = sent = b"%b %b HTTP/1.1%b" % (method, target[cached.cut :], cached.rest)
        self.upstream = connection
        connection.begin(self, request)
        connection.transport.write(sent)
        return True

    def _read_head(self, data: bytes) -> None:
        # RFC 9112 2.2 asks to skip empty lines before a request.
        data = data[empty_lines(data) :]
        end = data.find(b"\r\n\r\n")
        if end < 0 or end > MAX_HEAD:
            if len(data) > MAX_HEAD:
                self._refuse(431, f"the head is larger than {MAX_HEAD} bytes: delete the cookies of this site")
                return
            if not self._buffer and data:
                self.deadline = self._server.clock.now + HEAD_TIMEOUT_S
            self._buffer = data
            return
        self._buffer = data[end + 4 :]
        self._block = data[data.find(b"\r\n") : end + 4]
        try:
            request = parse_request(data[:end])
            if request.target[:1] != b"/":
                _to_origin_form(request)
        except BadMessage as error:
            self._refuse(error.status, error.message)
            return
        self._begin(request)

    def _begin(self, request: RequestHead) -> None:
        server = self._server
        self.request = request
        self.fresh = False
        self.deadline = inf
        self.started_at = server.clock.now
        self._retried = self._responded = self._ends_upstream = False
        server.metrics.requests += 1
        if request.fields.cookie:
            cookies, self._cookies = split_cookies(request.fields.cookie, server.workspace_cookie)
        else:
            cookies = self._cookies = []
        if request.fields.chunked:
            self._body = ChunkedBody(400)
        elif request.fields.content_length > 0:
            self._body = LengthBody(request.fields.content_length)
        local = server.local(request, self.peer)
        if local is not None:
            self._reply(local)
            return
        admission = server.admitter.recall(request, cookies)
        if admission is not None:
            self._forward(request, admission)
        else:
            self._start(self._decide(request, cookies, None))

    async def _decide(self, request: RequestHead, cookies: list[bytes], failed: Admission | None) -> None:
        decision = await self._server.admitter.decide(request, cookies, failed=failed)
        if isinstance(decision, Reply):
            self._reply(decision)
        else:
            self._forward(request, decision)

    def _forward(self, request: RequestHead, admission: Admission) -> None:
        self._admission = admission
        target = admission.target
        self.sibling = _sibling(request, admission)
        upgrade = wants_upgrade(request)
        if upgrade:
            if self._body is not None:
                self._refuse(400, "an upgrade has no body")
                return
            self._counts = False
        else:
            self._counts = None
            self._flowed()
        server = self._server
        self._insertion = b""
        document = target.tab is not None and is_document(request) and not upgrade
        if document and target.tab is not None and target.tab.is_for(request, target.rewrite.prefix):
            self._insertion = target.tab.insertion
            request.fields.lines = without_encodings(request.fields.lines)
        self._sent = request_bytes(
            request, target.rewrite, self._cookies, server.forwarded_for(request, self.peer), upgrade=upgrade
        )
        if not document:  # whether there is an insertion depends on the path, which the cache does not know
            server.header_cache.keep(self._block, request, admission, self._cookies, self.peer, self._sent)
        self._block = b""
        connection = target.pool.take(self.holder, repeatable=self._body is None and request.method in _REPEATABLE)
        if connection is not None:
            self._send(connection)
        else:
            self._start(self._connect(admission))

    async def _connect(self, admission: Admission) -> None:
        try:
            connection = await admission.target.pool.connect()
        except OSError:
            await self._unreachable(admission)
            return
        self._send(connection)

    async def _unreachable(self, admission: Admission) -> None:
        """Decide once more: the instance may have moved, or the workspace may have changed."""
        request = self.request
        if request is None:
            return
        cookies = cookie_values(request.fields.cookie, self._server.workspace_cookie)
        if self._retried:
            decision: Admission | Reply = self._server.away(request, admission)
        else:
            self._retried = True
            decision = await self._server.admitter.decide(request, cookies, failed=admission)
        if isinstance(decision, Reply):
            self._reply(decision)
        else:
            self._forward(request, decision)

    def _send(self, connection: UpstreamConnection) -> None:
        request = self.request
        if request is None or connection.closed:
            connection.abandon()
            if request is not None:
                self.upstream_failed("the workspace closed the connection")
            return
        self.upstream = connection
        connection.begin(self, request)
        connection.transport.write(self._sent)
        if self._body is not None:
            if self._admission is not None:
                budget = self._admission.target.activity.scan_budget
                self._pace = Pace(budget, self.transport, self.data_received, self._server.loop)
            waiting, self._buffer = self._buffer, b""
            self.deadline = self._server.clock.now + PAUSE_S
            self.transport.resume_reading()
            if waiting:
                self._forward_body(waiting)

    def _forward_body(self, data: bytes) -> None:
        body = self._body
        upstream = self.upstream
        assert body is not None
        assert upstream is not None
        try:
            end = body.feed(data, 0)
        except BadMessage as error:
            # The upstream must not treat the partial request as complete.
            upstream.abandon()
            self.upstream = None
            if self._responded:
                self.transport.abort()
            else:
                self._refuse(error.status, error.message)
            return
        self._flowed()
        if self._pace is not None and isinstance(body, ChunkedBody):
            self._pace.charge(body.lines)
            body.lines = 0
        if end < 0:
            self.deadline = body_deadline(self.deadline, self._server.clock.now, len(data))
            upstream.transport.write(data)
            return
        self.deadline = inf
        self._body = None
        if end < len(data):
            self._buffer = data[end:]
            data = data[:end]
        upstream.transport.write(data)

    def _read_buffered(self) -> None:
        if self.request is None and self._buffer and not self.transport.is_closing():
            data, self._buffer = self._buffer, b""
            self.deadline = self._server.clock.now + HEAD_TIMEOUT_S
            self._read_head(data)

    def upstream_lost(self, connection: UpstreamConnection) -> None:
        """Handle an upstream that closed in mid-exchange.

        A keep-alive connection that was just closing must not fail a request.
        """
        self.upstream = None
        request = self.request
        if request is None or self._responded:
            self.transport.abort()
        elif (
            not connection.started
            and connection.uses > 1
            and self._body is None
            and not self._retried
            and request.method in _REPEATABLE
            and not request.fields.has_body
            and self._admission is not None
        ):
            self._retried = True
            self._start(self._connect(self._admission))
        else:
            self.upstream_failed("the workspace closed the connection before it answered")

    def switch(self, upstream: UpstreamConnection, response: ResponseHead, early: bytes) -> None:
        """Handle 101: turn the connection into a tunnel and detach this protocol."""
        request = self.request
        admission = self._admission
        if request is None or admission is None or not wants_upgrade(request):
            upstream.abandon()
            self.upstream_failed("the workspace switched protocols without being asked")
            return
        self._server.metrics.count(101)
        self._server.connections.discard(self)  # it still counts as one of its address
        out = [*response_lines(response, admission.target.rewrite, request.fields.host)]
        out.append(b"Connection: Upgrade\r\nUpgrade: " + (response.upgrade or request.fields.upgrade))
        out.append(b"\r\n")
        waiting, self._buffer = self._buffer, b""
        tunnel = open_tunnel(
            self._server, self.transport, upstream, admission, response, b"\r\n".join(out) + early, waiting, self.peer
        )
        if self._ended:
            # The client finished sending before the switch, so the end of its data must be forwarded here.
            tunnel.client.eof_received()
        self.request = None
        self.upstream = None


def empty_lines(data: bytes) -> int:
    """Return the length of the empty lines at the beginning. 256 KB of them, two bytes at a time, take 10 ms."""
    length = 0
    for lines in (_EMPTY_LINES, b"\r\n"):
        while data.startswith(lines, length):
            length += len(lines)
    return length


def _sibling(request: RequestHead, admission: Admission) -> bytes:
    """Return the request's origin if it is that of another port of the same workspace."""
    origin = request.fields.origin
    # Only ports with their own host have no prefix.
    if not origin or origin == admission.origin or admission.target.rewrite.prefix:
        return b""
    return origin if is_sibling_port(origin.decode("latin-1"), admission.origin.decode()) else b""


def _to_origin_form(request: RequestHead) -> None:
    """Rewrite `GET http://host/path` to `GET /path` with that host.

    Other forms are for forward proxies, which this is not.
    """
    target = request.target
    if request.method == b"OPTIONS" and target == b"*":
        request.target = b"/*"
        return
    lowered = target[:8].lower()
    for scheme in (b"http://", b"https://"):
        if lowered.startswith(scheme):
            authority, slash, path = target[len(scheme) :].partition(b"/")
            if authority.lower() != request.fields.host.lower():
                raise BadMessage(400, "the target's host is not the Host")
            request.target = slash + path or b"/"
            return
    raise BadMessage(400, "the target is not a path")
