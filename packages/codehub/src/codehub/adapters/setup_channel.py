"""The link to the `workspaced` of one start: an upgraded connection with JSON objects as lines in both directions."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from codehub.adapters.workspaced_client import ByteStream, WorkspacedClient
from codehub.domain.errors import UpstreamUnavailable
from codehub.ports.instances import Upstream
from codehub.ports.setup import LinkStream, Message

# A devcontainer.json of 1 MiB, escaped. Our helper never sends more.
_LONGEST_LINE = 8 << 20


@dataclass(frozen=True, slots=True)
class _Stream:
    stream: ByteStream

    async def send(self, message: Message) -> None:
        try:
            await self.stream.write(json.dumps(message).encode() + b"\n")
        except OSError as error:
            raise UpstreamUnavailable("the workspace hung up") from error

    async def messages(self) -> AsyncIterator[Message]:
        ahead = b""
        while True:
            try:
                data = await self.stream.read()
            except OSError:
                return
            if not data:
                return
            *lines, ahead = (ahead + data).split(b"\n")
            if len(ahead) > _LONGEST_LINE:
                return
            for line in lines:
                try:
                    message = json.loads(line)
                except (ValueError, RecursionError):
                    continue
                if isinstance(message, dict):
                    yield message


@dataclass(frozen=True, slots=True)
class WorkspacedLinks:
    client: WorkspacedClient = field(default_factory=WorkspacedClient)

    @contextlib.asynccontextmanager
    async def open(self, upstream: Upstream) -> AsyncIterator[LinkStream | None]:
        async with self.client.stream(upstream, "/link") as found:
            yield _Stream(found) if isinstance(found, ByteStream) else None
