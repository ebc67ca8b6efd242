"""The link to the `workspaced` of one start: an upgraded connection with JSON objects as lines in both directions."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from codehub.adapters.workspaced_client import ByteStream, WorkspacedClient
from codehub.domain.errors import UpstreamUnavailable
from codehub.ports.instances import Upstream
from codehub.ports.setup import LinkStream, Message

# A devcontainer.json of 128 KiB, escaped. Our helper never sends more.
_LONGEST_LINE = 1 << 20
# The link is read more slowly the more a workspace sends, so that a flood takes little of the coordinator's time: parsing
# a megabyte can take 0.1 s. A helper sends a few short lines a second.
_PER_READ_S = 0.002
_PER_LINE_S = 0.002
_PER_BYTE_S = 1 / (256 << 10)


@dataclass(frozen=True, slots=True)
class _Stream:
    stream: ByteStream

    async def send(self, message: Message) -> None:
        try:
            await self.stream.write(json.dumps(message).encode() + b"\n")
        except OSError as error:
            raise UpstreamUnavailable("the workspace closed the connection") from error

    async def messages(self) -> AsyncIterator[Message]:
        ahead = bytearray()
        while True:
            try:
                data = await self.stream.read()
            except OSError:
                return
            if not data:
                return
            ahead += data
            lines: list[bytes] = []
            if b"\n" in data:
                *lines, rest = bytes(ahead).split(b"\n")
                ahead = bytearray(rest)
            if len(ahead) > _LONGEST_LINE:
                return
            for line in lines:
                if len(line) > _LONGEST_LINE:
                    return
                try:
                    message = json.loads(line)
                except (ValueError, RecursionError):
                    continue
                if isinstance(message, dict):
                    yield message
            await asyncio.sleep(_PER_READ_S + _PER_LINE_S * len(lines) + _PER_BYTE_S * len(data))


@dataclass(frozen=True, slots=True)
class WorkspacedLinks:
    client: WorkspacedClient = field(default_factory=WorkspacedClient)

    @contextlib.asynccontextmanager
    async def open(self, upstream: Upstream) -> AsyncIterator[LinkStream | None]:
        async with self.client.stream(upstream, "/link") as found:
            yield _Stream(found) if isinstance(found, ByteStream) else None
