"""Streamed answers: live events and followed logs.

Each ends when its client disconnects or stops reading, when its source or session ends, or when the process shuts down.
None holds a database connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import structlog
from starlette.requests import HTTPConnection
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

_log = structlog.get_logger()


class StreamedAnswer(Response):
    """Send chunks as they arrive. A client that reads nothing for `send_s` is disconnected.

    `ended` returns when the stream's session has.
    """

    def __init__(
        self,
        chunks: AsyncIterator[bytes],
        *,
        media_type: str,
        send_s: float,
        leaving: asyncio.Event,
        closed: Callable[[], None] = lambda: None,
        dropped: Callable[[], None] = lambda: None,
        ended: Callable[[HTTPConnection], Coroutine[Any, Any, None]] | None = None,
    ) -> None:
        super().__init__(media_type=media_type, headers={"X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._chunks = chunks
        self._send_s = send_s
        self._leaving = leaving
        self._closed = closed
        self._dropped = dropped
        self._ended = ended

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            tasks: list[asyncio.Task[Any]] = [
                asyncio.create_task(self._write(scope, send)),
                asyncio.create_task(_left(receive)),
                asyncio.create_task(self._leaving.wait()),
            ]
            if self._ended is not None:
                tasks.append(asyncio.create_task(self._ended(HTTPConnection(scope))))
            try:
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in tasks:
                    task.cancel()
                results = await asyncio.gather(*tasks, return_exceptions=True)
            for result in results:
                if isinstance(result, Exception):
                    raise result
        finally:
            self._closed()

    async def _write(self, scope: Scope, send: Send) -> None:
        try:
            async with asyncio.timeout(self._send_s):
                await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            async for chunk in self._chunks:
                async with asyncio.timeout(self._send_s):
                    await send({"type": "http.response.body", "body": chunk, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        except TimeoutError:
            _log.info("a client that reads nothing was cut off", path=scope["path"])
            self._dropped()
            abort = scope.get("extensions", {}).get("codehub.abort", {}).get("abort")
            if abort is not None:
                abort()


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
