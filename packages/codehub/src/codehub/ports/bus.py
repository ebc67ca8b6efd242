"""Hints between processes (Redis pub/sub). Losing any or all of them only causes delays, never errors."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Protocol


class Bus(Protocol):
    async def publish(self, channel: str, payload: str) -> None:
        """Raises BackendDown if the bus is unavailable; callers may continue."""
        ...

    def subscribe(self, *channels: str) -> AsyncIterator[tuple[str, str]]:
        """Yield (channel, payload). Raises BackendDown if the connection breaks; the caller subscribes again."""
        ...
