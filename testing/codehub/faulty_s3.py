"""A proxy in front of a real S3 store that simulates failures of the store."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from testing.codehub.objectstore import S3Server


@dataclass
class FaultyS3:
    """The proxy.

    `mode` applies to new connections: "", "500", "403", "silent", "slow", "reset-up:BYTES" or "reset-down:BYTES".
    """

    target: int
    mode: str = ""
    port: int = 0
    failed: int = 0  # connections that the mode ended
    open: set[asyncio.Task[None]] = field(default_factory=set)

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def turn(self, mode: str) -> None:
        """Change the mode. Also closes kept-alive connections."""
        self.mode = mode
        for task in list(self.open):
            task.cancel()

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.open.add(task)
        try:
            if self.mode in ("500", "403"):
                self.failed += 1
                await reader.readuntil(b"\r\n\r\n")
                body = b"<Error><Code>Planned</Code><Message>planned failure</Message></Error>"
                head = f"HTTP/1.1 {self.mode} Injected\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
                writer.write(head.encode() + body)
                await writer.drain()
                return
            if self.mode == "silent":
                await asyncio.Event().wait()
            back, forth = await asyncio.open_connection("127.0.0.1", self.target)
            try:
                slow = self.mode == "slow"
                limit = int(self.mode.partition(":")[2] or 0)
                up = asyncio.create_task(_pump(reader, forth, limit if self.mode.startswith("reset-up") else 0, slow))
                down = asyncio.create_task(
                    _pump(back, writer, limit if self.mode.startswith("reset-down") else 0, slow)
                )
                try:
                    await asyncio.wait([up, down], return_when=asyncio.FIRST_COMPLETED)
                finally:
                    for pump in (up, down):
                        pump.cancel()
                ends = await asyncio.gather(up, down, return_exceptions=True)
                self.failed += True in ends
            finally:
                forth.close()
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # the peer disconnected, or the test ended
        finally:
            writer.transport.abort() if self.mode.startswith("reset") else writer.close()
            self.open.discard(task)


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, limit: int, slow: bool) -> bool:
    """Copy until the end or the limit. Returns True at the limit."""
    passed = 0
    while data := await reader.read(8_192 if slow else 65_536):
        if slow:
            await asyncio.sleep(0.005)  # about a megabyte per second
        passed += len(data)
        if limit and passed > limit:
            return True
        writer.write(data)
        await writer.drain()
    return False


@contextlib.asynccontextmanager
async def faulty_proxy(store: S3Server) -> AsyncIterator[FaultyS3]:
    proxy = FaultyS3(int(store.endpoint.rpartition(":")[2]))
    server = await asyncio.start_server(proxy.handle, "127.0.0.1", 0)
    proxy.port = server.sockets[0].getsockname()[1]
    try:
        yield proxy
    finally:
        server.close()
        for task in list(proxy.open):
            task.cancel()
        await asyncio.gather(*proxy.open, return_exceptions=True)
