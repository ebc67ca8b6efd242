"""Serves the app on sockets that are already bound, until it is cancelled; then streams end and requests finish."""

from __future__ import annotations

import asyncio
import resource
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import cast

import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from codehub.api.context import Context
from codehub.api.websocket_server import LimitedWebSocket, is_unix
from codehub.domain.body_pace import PAUSE_S, body_deadline
from codehub.domain.connection_cap import UNIX_PEER, ConnectionCap, most_per_address
from codehub.domain.cookies import cookie_values

_LEAVE_WITHIN_S = 5
# Longer than a load balancer keeps its idle connections. Otherwise it sends requests on connections that are closing.
_KEEP_ALIVE_S = 75
# A browser keeps at most 180 cookies of 4 KiB of a site. Pages on its other hosts can set them all, and must not be able to
# keep users out of the dashboard.
_MAX_HEAD_BYTES = 1 << 20
# Session cookies in one header: a WebSocket's handshake takes 128 headers of at most 8 KiB.
_COOKIES_OF_A_LINE = 32
_LONGEST_SECRET = 64
# From the first byte of a head to its last, and from the connection to the first head. Slower clients are attacks.
_HEAD_TIMEOUT_S = 15.0
_TOO_SLOW = (
    b"HTTP/1.1 408 Request Timeout\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n"
    b'{"error": {"code": "INVALID_REQUEST", "message": "the body stopped, or came too slowly"}}\n'
)
_TOO_LARGE = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n"
    b'{"error": {"code": "INVALID_REQUEST", "message": "the head of the request is too large"}}\n'
)


class _Protocol(HttpToolsProtocol):
    """Lets a response abort its connection: a graceful close would wait for a client that reads nothing.

    Closes a connection whose request head is too large or not complete in time or whose body comes too slowly, and rejects
    connections beyond an address's limit. Of all cookies it reads those of the session only.
    """

    cap: ConnectionCap
    session_cookie: bytes
    _head_bytes = 0
    _awaiting_head: asyncio.TimerHandle | None = None
    _awaiting_body: asyncio.TimerHandle | None = None
    _in_body = False
    _body_deadline = 0.0
    _admitted = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if is_unix(transport):
            self.client = (UNIX_PEER, 0)
        self._admitted = self.cap.admit(self._address)
        if self._admitted:
            self._await_head()
        else:
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._head_is_there()
        self._body_is_there()
        self._leave()

    def handle_websocket_upgrade(self) -> None:
        self._head_is_there()
        self._body_is_there()
        super().handle_websocket_upgrade()
        # The transport has another protocol now, so this one is not notified of the connection's end.
        upgraded = self.transport.get_protocol()
        assert isinstance(upgraded, LimitedWebSocket)
        upgraded.released = self._leave

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._await_head()
        self.scope["extensions"] = {"codehub.abort": {"abort": self.transport.abort}}

    def on_header(self, name: bytes, value: bytes) -> None:
        if name.lower() != b"cookie":
            super().on_header(name, value)
            return
        found = [secret for secret in cookie_values(value, self.session_cookie) if len(secret) <= _LONGEST_SECRET]
        for begin in range(0, len(found), _COOKIES_OF_A_LINE):
            pairs = [self.session_cookie + b"=" + secret for secret in found[begin : begin + _COOKIES_OF_A_LINE]]
            super().on_header(b"cookie", b"; ".join(pairs))

    def on_headers_complete(self) -> None:
        self._head_is_there()
        self._in_body = True
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._body_deadline = body_deadline(self._body_deadline, self.loop.time(), len(body))
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._body_is_there()
        super().on_message_complete()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._awaiting_head is not None:
            self._head_bytes += len(data)
            if self._head_bytes > _MAX_HEAD_BYTES and not self.transport.is_closing():
                self.transport.write(_TOO_LARGE)
                self.transport.close()
                return
        if self._in_body and self._awaiting_body is None and not self.transport.is_closing():
            self._body_deadline = self.loop.time() + PAUSE_S
            self._await_body()

    @property
    def _address(self) -> str:
        return self.client[0] if self.client else ""

    def _leave(self) -> None:
        if self._admitted:
            self._admitted = False
            self.cap.release(self._address)

    def _await_head(self) -> None:
        if self._awaiting_head is None:
            self._awaiting_head = self.loop.call_later(_HEAD_TIMEOUT_S, self.transport.abort)

    def _await_body(self) -> None:
        """Check the body's deadline when it expires, not with every byte."""
        left = self._body_deadline - self.loop.time()
        if left <= 0 and self.flow.read_paused:
            # CodeHub or the workspace is slow, not the client.
            self._body_deadline += PAUSE_S
            left += PAUSE_S
        if left > 0:
            self._awaiting_body = self.loop.call_later(left, self._await_body)
            return
        self._body_is_there()
        if not self.cycle.response_started:
            self.transport.write(_TOO_SLOW)
        self.transport.close()

    def _body_is_there(self) -> None:
        self._in_body = False
        if self._awaiting_body is not None:
            self._awaiting_body.cancel()
            self._awaiting_body = None

    def _head_is_there(self) -> None:
        self._head_bytes = 0
        if self._awaiting_head is not None:
            self._awaiting_head.cancel()
            self._awaiting_head = None


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._ready()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """The entry point handles signals."""
        yield


async def serve_api(
    app: FastAPI, sockets: Sequence[socket.socket], *, ready: Callable[[], None] = lambda: None
) -> None:
    """Serve until cancelled. `ready` is called once requests are accepted."""
    context = cast(Context, app.state.context)
    most = most_per_address(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    of_this_app = {
        "cap": ConnectionCap(most, context.config.trusted_proxies),
        "session_cookie": context.config.session_cookie.encode(),
    }
    limited = type("_Limited", (_Protocol,), of_this_app)
    behind = {"trusted_proxies": context.config.trusted_proxies, "proxy_secret": context.config.proxy_secret}
    server = _Server(
        uvicorn.Config(
            app,
            http=limited,
            ws=type("_WebSocket", (LimitedWebSocket,), behind),
            ws_max_size=1 << 20,
            ws_ping_interval=30.0,
            # WebSockets carry terminal output; nothing is gained by compressing it again.
            ws_per_message_deflate=False,
            lifespan="on",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=_KEEP_ALIVE_S,
            timeout_graceful_shutdown=_LEAVE_WITHIN_S,
        ),
        ready,
    )
    serving = asyncio.create_task(server.serve(sockets=list(sockets)), name="api")
    try:
        await asyncio.shield(serving)
    except asyncio.CancelledError:
        context.leave()
        server.should_exit = True
        await asyncio.shield(serving)
        raise
