"""Connects a worker thread that reads or produces chunks with the event loop that talks to the engine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

_END = object()


def from_loop(chunks: AsyncIterator[bytes], loop: asyncio.AbstractEventLoop) -> Iterator[bytes]:
    """Iterate over an asynchronous stream from a thread, chunk by chunk."""

    async def step() -> object:
        return await anext(chunks, _END)

    while True:
        chunk = asyncio.run_coroutine_threadsafe(step(), loop).result()
        if not isinstance(chunk, bytes):
            return
        yield chunk


class FromThread:
    """Iterates over a blocking iterator from the loop. `error` is its original error, which a client library would wrap."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self.error: BaseException | None = None

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while True:
            try:
                chunk = await asyncio.to_thread(next, self._chunks, None)
            except Exception as error:
                self.error = error
                raise
            if chunk is None:
                return
            yield chunk
