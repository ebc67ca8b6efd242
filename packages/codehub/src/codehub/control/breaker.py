"""A circuit breaker per backend: calls to a dead backend fail fast and do not count as attempts (docs/errors.md)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Final, TypeVar

import structlog

from codehub.domain.errors import BackendDown
from codehub.ports.clock import Clock

_log = structlog.get_logger()
T = TypeVar("T")

FAILURES_TO_OPEN: Final = 5
OPEN_FOR_S: Final = 30.0
GOOD_PINGS_TO_CLOSE: Final = 2
# How long a backend may take to list or describe what it has, or to answer a ping. Some accept every request and answer
# none. A late answer is no harm: what could not be observed is Unknown, and the next resync asks again.
OBSERVED_WITHIN_S: Final = 20.0


class Breaker:
    def __init__(self, name: str, ping: Callable[[], Awaitable[None]], clock: Clock) -> None:
        self.name = name
        self._ping = ping
        self._clock = clock
        self._failures = 0
        self._open_until: float | None = None
        self._pinging = False
        # The first failure since the backend last answered. The message stays the same until it answers again.
        self.down_since: datetime | None = None
        self._first_error = ""

    @property
    def trouble(self) -> str:
        """Which backend does not answer, since when and why. Empty while it answers."""
        if self.down_since is None:
            return ""
        return f"{self.name} does not answer since {self.down_since:%Y-%m-%d %H:%M} UTC: {self._first_error}"

    @property
    def is_open(self) -> bool:
        return self._open_until is not None

    async def call(self, what: Callable[[], Awaitable[T]], within_s: float | None = None) -> T:
        """Raises BackendDown at once while the circuit is open, and when the backend does not answer within this time."""
        if self._open_until is not None:
            await self._try_to_close()
        try:
            result = await _within(within_s, what)
        except BackendDown as error:
            self._failed(error)
            raise
        self._failures = 0
        self.down_since = None
        return result

    async def _try_to_close(self) -> None:
        assert self._open_until is not None
        if self._pinging or self._clock.monotonic() < self._open_until:
            raise BackendDown(f"{self.name} does not answer; it will be retried soon")
        self._pinging = True
        try:
            for _ in range(GOOD_PINGS_TO_CLOSE):
                await _within(OBSERVED_WITHIN_S, self._ping)
        except BackendDown:
            self._open_until = self._clock.monotonic() + OPEN_FOR_S
            raise
        finally:
            self._pinging = False
        self._open_until = None
        self._failures = 0
        self.down_since = None
        _log.info("a backend answers again", backend=self.name)

    def _failed(self, error: BackendDown) -> None:
        self._failures += 1
        if self.down_since is None:
            self.down_since, self._first_error = self._clock.now(), str(error)
        if self._failures >= FAILURES_TO_OPEN and self._open_until is None:
            self._open_until = self._clock.monotonic() + OPEN_FOR_S
            _log.warning("a backend does not answer", backend=self.name, error=str(error))


async def _within(limit_s: float | None, what: Callable[[], Awaitable[T]]) -> T:
    limit = asyncio.timeout(limit_s)
    try:
        async with limit:
            return await what()
    except TimeoutError as error:
        if not limit.expired():
            raise
        raise BackendDown(f"no answer within {limit_s:g} s") from error
