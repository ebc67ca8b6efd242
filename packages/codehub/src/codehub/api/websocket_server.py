"""WebSockets of the API's listener: limits the time that one client's frames take to parse.

A frame can have six bytes and takes some 25 microseconds. A client that sends nothing else, signed in or not, would
otherwise keep the event loop busy and delay everybody's requests.
"""

from __future__ import annotations

import asyncio
import socket
import time
import weakref
from collections.abc import Callable, Sequence
from typing import Final

from starlette.datastructures import Headers
from starlette.types import Message
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.http11 import Request

from codehub.api.addresses import client_address
from codehub.domain.connection_cap import UNIX_PEER, Network, network_of

_SLICE: Final = 1024  # parsed at once: at most 170 frames
SMALL_READ: Final = 64  # keystrokes and acknowledgements never wait
# The share of the event loop that parsing for all connections of one address may take.
_SHARE: Final = 0.05


class ParseBudget:
    """What the connections of one address may take. `free_at` is the loop's time at which it is no longer used up."""

    def __init__(self) -> None:
        self.free_at = 0.0

    def charge(self, cpu_s: float, now: float) -> None:
        self.free_at = max(self.free_at, now) + cpu_s / _SHARE


_budgets: weakref.WeakValueDictionary[str, ParseBudget] = weakref.WeakValueDictionary()


class LimitedWebSocket(WebSocketsSansIOProtocol):
    trusted_proxies: Sequence[Network] = ()
    proxy_secret = ""
    released: Callable[[], None] | None = None  # called when the connection has ended
    _budget: ParseBudget | None = None
    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._held = bytearray()
        if is_unix(transport):
            self.client = (UNIX_PEER, 0)

    def connection_lost(self, exc: Exception | None) -> None:
        self._held.clear()
        if self._timer is not None:
            self._timer.cancel()
        super().connection_lost(exc)
        if self.released is not None:
            self.released()

    def handle_connect(self, event: Request) -> None:
        super().handle_connect(event)
        if self.response.status_code == 101:
            self.scope["extensions"]["codehub.abort"] = {"abort": self.transport.abort}
            headers = Headers(raw=self.scope["headers"])  # type: ignore[arg-type]
            address = client_address(self.scope, headers, self.trusted_proxies, self.proxy_secret)  # type: ignore[arg-type]
            self._budget = _budgets.setdefault(network_of(address), ParseBudget())

    def data_received(self, data: bytes) -> None:
        if self._budget is None or (len(data) <= SMALL_READ and not self._held):
            super().data_received(data)
            return
        self._held += data
        if self._timer is None:
            self._parse(self._budget)

    def _parse(self, budget: ParseBudget) -> None:
        """Parse one slice. The rest waits until others had their turn and the budget allows it."""
        self._timer = None
        if self.transport.is_closing():
            self._held.clear()
            return
        if budget.free_at <= self.loop.time():
            piece = bytes(self._held[:_SLICE])
            del self._held[:_SLICE]
            # CPU time, so that a busy machine does not slow down its users even more.
            begun = time.thread_time()
            super().data_received(piece)
            budget.charge(time.thread_time() - begun, self.loop.time())
        if self._held:
            self._pause()
            wait_s = max(0.0, budget.free_at - self.loop.time())
            self._timer = self.loop.call_later(wait_s, self._parse, budget)
        elif not self.read_paused and not self.transport.is_closing():
            self.transport.resume_reading()

    def _pause(self) -> None:
        if self._held and not self.transport.is_closing():
            self.transport.pause_reading()

    async def receive(self) -> Message:  # type: ignore[override]
        message = await super().receive()
        self._pause()  # uvicorn resumes reading when the application has taken a message
        return message  # type: ignore[return-value]

    async def send(self, message: Message) -> None:  # type: ignore[override]
        await super().send(message)  # type: ignore[arg-type]
        self._pause()  # and when it closes the connection


def is_unix(transport: asyncio.BaseTransport) -> bool:
    """Whether it is a connection of the Unix socket. A missing address does not say so: a reset connection has none."""
    sock = transport.get_extra_info("socket")
    return sock is not None and sock.family == socket.AF_UNIX
