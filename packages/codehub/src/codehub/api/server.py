"""Listening: the app on sockets that are bound already, until it is cancelled; then streams end and requests finish."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import cast

import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from codehub.api.context import Context

_LEAVE_WITHIN_S = 5
# Longer than a load balancer keeps its idle connections, or it sends a request into one we are closing.
_KEEP_ALIVE_S = 75


class _Protocol(HttpToolsProtocol):
    """Lets a response cut its connection off: closing politely would wait for a client that reads nothing."""

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.scope["extensions"] = {"codehub.abort": {"abort": self.transport.abort}}


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
        """Signals are the entry point's."""
        yield


async def serve_api(
    app: FastAPI, sockets: Sequence[socket.socket], *, ready: Callable[[], None] = lambda: None
) -> None:
    """Serve until cancelled. `ready` is called once requests are taken."""
    server = _Server(
        uvicorn.Config(
            app,
            http=_Protocol,
            ws="websockets-sansio",
            ws_max_size=1 << 20,
            ws_ping_interval=30.0,
            # The screen of a terminal is drawn from what was sent: nothing is gained by compressing it again.
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
        cast(Context, app.state.context).leave()
        server.should_exit = True
        await asyncio.shield(serving)
        raise
