"""A connection that is read in small pieces, and slowly if they are expensive to parse.

Whoever answers chooses how many chunks or interim responses (1xx) a kilobyte holds. Parsing them takes the event loop that
all workspaces share.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

import httpcore

_PIECE: Final = 4096  # with chunks of one byte, 30 ms of parsing
_PAUSE_PER_S: Final = 9.0  # so that parsing takes at most a tenth of the event loop


class PacedStream(httpcore.AsyncNetworkStream):
    """`used_s` is the processor time of this thread: between two reads, nothing else runs in it than the parser."""

    def __init__(
        self,
        inner: httpcore.AsyncNetworkStream,
        used_s: Callable[[], float] = time.thread_time,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._inner = inner
        self._used_s = used_s
        self._sleep = sleep
        self._read_at: float | None = None

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        if self._read_at is not None:
            await self._sleep(_PAUSE_PER_S * (self._used_s() - self._read_at))
        data = await self._inner.read(min(max_bytes, _PIECE), timeout)
        self._read_at = self._used_s()
        return data

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._read_at = None  # the next request: others had the event loop meanwhile
        await self._inner.write(buffer, timeout)

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.AsyncNetworkStream:
        inner = await self._inner.start_tls(ssl_context, server_hostname, timeout)
        return PacedStream(inner, self._used_s, self._sleep)

    def get_extra_info(self, info: str) -> Any:
        return self._inner.get_extra_info(info)
