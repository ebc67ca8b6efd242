"""Login lock-out: five failures lock a user+address out, for 30 s, doubling with each further failure, up to 30 min.

An attempt is counted as a failure before the password is looked at and forgiven when it was right: however many guesses
come at once, at most five are ever checked. Within one process the attempts on one user+address go one after another, so
that several right ones at once do not lock each other out.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from codehub.adapters.postgres import users
from codehub.adapters.postgres.pool import Database
from codehub.domain.errors import TooManyRequests
from codehub.services.principal import Clock

FREE_FAILURES = 5
FIRST_LOCK = timedelta(seconds=30)
LONGEST_LOCK = timedelta(minutes=30)
# A row this old says nothing any more.
FORGET_AFTER = timedelta(days=1)


def locked_for(failures: int) -> timedelta | None:
    """How long this many failures in a row lock out."""
    if failures < FREE_FAILURES:
        return None
    doublings = min(failures - FREE_FAILURES, 16)
    return min(FIRST_LOCK * (1 << doublings), LONGEST_LOCK)


@dataclass(slots=True)
class Lockout:
    database: Database
    clock: Clock
    _turns: dict[tuple[str, str], tuple[asyncio.Lock, int]] = field(default_factory=dict)

    @asynccontextmanager
    async def attempt(self, username: str, address: str) -> AsyncIterator[None]:
        """Around one check of a password. Raises TooManyRequests while locked out; call `forgive` when it was right."""
        async with self._turn(username, address):
            await self._count(username, address)
            yield

    async def forgive(self, username: str, address: str) -> None:
        async with self.database.transaction() as tx:
            await users.forget_failures(tx, username, address)

    async def _count(self, username: str, address: str) -> None:
        now = self.clock()
        async with self.database.transaction() as tx:
            seen = await users.lock_failures(tx, username, address, now)
            if seen.locked_until is not None and seen.locked_until > now:
                raise _locked(seen.locked_until, now)
            failures = 1 if seen.last_at < now - FORGET_AFTER else seen.count + 1
            lock = locked_for(failures)
            await users.record_failure(
                tx,
                username,
                address,
                count=failures,
                locked_until=None if lock is None else now + lock,
                now=now,
            )

    @asynccontextmanager
    async def _turn(self, username: str, address: str) -> AsyncIterator[None]:
        key = (username, address)
        lock, waiting = self._turns.get(key, (asyncio.Lock(), 0))
        self._turns[key] = (lock, waiting + 1)
        try:
            async with lock:
                yield
        finally:
            lock, waiting = self._turns.pop(key)
            if waiting > 1:
                self._turns[key] = (lock, waiting - 1)


def _locked(until: datetime, now: datetime) -> TooManyRequests:
    seconds = max(1, -int(-(until - now).total_seconds() // 1))
    return TooManyRequests(f"too many failed sign-ins: try again in {seconds} s", retry_after_s=seconds)
