"""Activity times: a write buffer in Redis between the proxies and the TTL runner.

Raises BackendDown if it is unavailable.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol


class ActivityStore(Protocol):
    async def flush(self, touched: Mapping[str, float]) -> None:
        """Store Unix times by workspace id. A time never goes backwards (ZADD GT)."""
        ...

    async def pending(self) -> Mapping[str, float]:
        """Return all times that were flushed and not yet forgotten."""
        ...

    async def forget(self, stored: Mapping[str, float]) -> None:
        """Remove the entries whose time still equals the given one."""
        ...


class DurableActivity(ActivityStore, Protocol):
    """The activity store as used by the TTL runner."""

    async def unbroken(self) -> bool:
        """Return whether the store kept its data since the last call. False if it lost data, or on the first call."""
        ...
