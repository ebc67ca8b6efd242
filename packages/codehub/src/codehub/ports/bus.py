"""Hints between processes (Redis pub/sub). Losing any or all of them only makes things later, never wrong."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Protocol


class Bus(Protocol):
    async def publish(self, channel: str, payload: str) -> None:
        """Raises BackendDown when the bus is away; callers may go on."""
        ...

    def subscribe(self, *channels: str) -> AsyncIterator[tuple[str, str]]:
        """(channel, payload) as they come. Raises BackendDown when the connection breaks; the caller subscribes again."""
        ...
