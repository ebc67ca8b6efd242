"""A client of server-sent events for tests and benchmarks: events as (name, data), over a plain connection."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit


class EventStream:
    """`async with EventStream.open(url, headers) as stream: await stream.next("snapshot")`."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._buffer = b""

    @classmethod
    async def open(cls, url: str, headers: dict[str, str], *, receive_buffer: int = 1 << 20) -> EventStream:
        parts = urlsplit(url)
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port, limit=receive_buffer)
        path = parts.path + (f"?{parts.query}" if parts.query else "")
        lines = [f"GET {path} HTTP/1.1", f"Host: {parts.netloc}", *(f"{k}: {v}" for k, v in headers.items()), "", ""]
        writer.write("\r\n".join(lines).encode())
        await writer.drain()
        stream = cls(reader, writer)
        head = await reader.readuntil(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 200 "):
            raise ConnectionError(head.decode("latin-1"))
        return stream

    async def event(self) -> tuple[str, Any] | None:
        """Return the next event, or None if the stream has ended."""
        while b"\n\n" not in self._buffer:
            try:
                size = int(await self._reader.readuntil(b"\r\n"), 16)
                chunk = await self._reader.readexactly(size + 2)
            except (asyncio.IncompleteReadError, ConnectionError):
                return None
            if size == 0:
                return None
            self._buffer += chunk[:-2]
        raw, _, self._buffer = self._buffer.partition(b"\n\n")
        fields = dict(line.split(": ", 1) for line in raw.decode().split("\n"))
        return fields["event"], json.loads(fields["data"])

    async def next(self, *names: str, within_s: float = 90) -> Any:
        """Return the data of the next event with one of these names. Others are skipped."""
        async with asyncio.timeout(within_s):
            while (event := await self.event()) is not None:
                if event[0] in names:
                    return event[1]
        raise AssertionError(f"the stream ended before {' or '.join(names)}")

    async def end(self, *, within_s: float = 90) -> None:
        """Read until the server ends the stream."""
        async with asyncio.timeout(within_s):
            while await self.event() is not None:
                pass

    async def close(self) -> None:
        self._writer.transport.abort()
        with suppress(ConnectionError):
            await self._writer.wait_closed()

    async def __aenter__(self) -> EventStream:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
