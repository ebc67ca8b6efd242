"""Who worked when: a write buffer in Redis between the proxies and the TTL Runner. Raises BackendDown when it is away."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol


class ActivityStore(Protocol):
    async def flush(self, touched: Mapping[str, float]) -> None:
        """Unix times by workspace id; a time never goes backwards (ZADD GT)."""
        ...

    async def pending(self) -> Mapping[str, float]:
        """All that was flushed and not yet forgotten."""
        ...

    async def forget(self, stored: Mapping[str, float]) -> None:
        """Remove the entries whose time is still exactly this one."""
        ...


class DurableActivity(ActivityStore, Protocol):
    """As the TTL Runner needs it."""

    async def unbroken(self) -> bool:
        """Whether it kept what it was given since this was last asked; False when it lost all, or never was asked."""
        ...
