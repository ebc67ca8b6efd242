"""Limits on guessing passwords. An attacker cannot lock an account for its owner at another address.

* One user from one address: five failures lock that pair out for 30 s, doubling with each further failure, up to 30 min.
  An attempt is counted as a failure before the password is checked, and the failure is removed if it was right: of any
  number of concurrent guesses, at most five are ever checked. Within one process, the attempts of one pair run one after
  another, so that several correct ones at once do not lock each other out.
* One account from many addresses, or many accounts from one: attempts are slowed down, not rejected. An address from which
  the user signed in recently is not slowed down by attacks on the account, and its passwords are checked in a queue that
  guesses from elsewhere do not fill.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from codehub.adapters.postgres import users
from codehub.adapters.postgres.pool import Database, Transaction
from codehub.domain.connection_cap import network_of
from codehub.domain.errors import TooManyRequests
from codehub.services.principal import Clock

FREE_FAILURES = 5
FIRST_LOCK = timedelta(seconds=30)
LONGEST_LOCK = timedelta(minutes=30)
# An older row has no effect.
FORGET_AFTER = timedelta(days=1)
# Failures of one account, or from one address, before attempts are slowed down. Many users may share an address.
FREE_FOR_ACCOUNT = 20
FREE_FOR_ADDRESS = 50
_FIRST_PACE_S = 0.25
_LONGEST_PACE_S = 4.0
# How many attempts may queue. With the longest delay, the last one waits well below a minute.
_WAITING = 8
_FAMILIAR_FOR = timedelta(days=30)
# Stands for all addresses of a user, and for all users of an address. Neither is ever empty.
_ALL = ""


def locked_for(failures: int) -> timedelta | None:
    """Return how long this many consecutive failures lock out."""
    if failures < FREE_FAILURES:
        return None
    doublings = min(failures - FREE_FAILURES, 16)
    return min(FIRST_LOCK * (1 << doublings), LONGEST_LOCK)


def pace_s(failures: int, free: int) -> float:
    """Return how long an attempt waits after this many failures: longer with each further `free` ones."""
    if failures <= free:
        return 0.0
    return min(_FIRST_PACE_S * float(2 ** min(failures // free, 16)), _LONGEST_PACE_S)


@dataclass(frozen=True, slots=True)
class Attempt:
    """One password check. `locks` is how long the pair is locked out if it fails.

    `familiar`: the user signed in from this address recently.
    """

    locks: timedelta | None
    pace_s: float = 0.0
    familiar: bool = False


@dataclass(slots=True)
class Lockout:
    database: Database
    clock: Clock
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    _turns: dict[tuple[str, str], tuple[asyncio.Lock, int]] = field(default_factory=dict)

    @asynccontextmanager
    async def attempt(self, username: str, address: str) -> AsyncIterator[Attempt]:
        """Wrap one password check. Raises TooManyRequests while locked out; call `forgive` if the password was right."""
        network = network_of(address)
        # Before the count: whoever is turned away here leaves nothing in the database.
        self._check_queue((_ALL, network), _WAITING)
        async with self._turn((username, network)):
            attempt, slowed_by = await self._count(username, network, address)
            if slowed_by is not None:
                async with self._turn(slowed_by, at_most=_WAITING):
                    await self.sleep(attempt.pace_s)
            yield attempt

    async def forgive(self, username: str, address: str) -> None:
        network = network_of(address)
        async with self.database.transaction() as tx:
            await users.forget_failures(tx, username, network)
            await users.forgive_one_failure(tx, [(username, _ALL), (_ALL, network)])

    async def _count(self, username: str, network: str, address: str) -> tuple[Attempt, tuple[str, str] | None]:
        """Count this attempt as a failure. Returns it and the queue it waits in, if any."""
        now = self.clock()
        async with self.database.transaction() as tx:
            seen = await users.lock_failures(tx, username, network, now)
            if seen.locked_until is not None and seen.locked_until > now:
                raise _locked(seen.locked_until, now)
            failures = 1 if seen.last_at < now - FORGET_AFTER else seen.count + 1
            lock = locked_for(failures)
            until = None if lock is None else now + lock
            await users.record_failure(tx, username, network, count=failures, locked_until=until, now=now)
            familiar = await users.signed_in_from(tx, username, address, now - _FAMILIAR_FOR)
            # Always in this order, so that two attempts cannot deadlock on each other's rows.
            by_account = await self._add(tx, (username, _ALL), now)
            by_address = await self._add(tx, (_ALL, network), now)
        account_s = 0.0 if familiar else pace_s(by_account, FREE_FOR_ACCOUNT)
        address_s = pace_s(by_address, FREE_FOR_ADDRESS)
        if not account_s and not address_s:
            return Attempt(lock, familiar=familiar), None
        queue = (username, _ALL) if account_s >= address_s else (_ALL, network)
        return Attempt(lock, max(account_s, address_s), familiar), queue

    async def _add(self, tx: Transaction, key: tuple[str, str], now: datetime) -> int:
        seen = await users.lock_failures(tx, *key, now)
        count = 1 if seen.last_at < now - FORGET_AFTER else seen.count + 1
        await users.record_failure(tx, *key, count=count, locked_until=None, now=now)
        return count

    @asynccontextmanager
    async def _turn(self, key: tuple[str, str], *, at_most: int | None = None) -> AsyncIterator[None]:
        if at_most is not None:
            self._check_queue(key, at_most)
        lock, waiting = self._turns.get(key, (asyncio.Lock(), 0))
        self._turns[key] = (lock, waiting + 1)
        try:
            async with lock:
                yield
        finally:
            lock, waiting = self._turns.pop(key)
            if waiting > 1:
                self._turns[key] = (lock, waiting - 1)

    def _check_queue(self, key: tuple[str, str], at_most: int) -> None:
        _, waiting = self._turns.get(key, (None, 0))
        if waiting >= at_most:
            raise TooManyRequests("too many failed sign-ins: try again in 5 s", retry_after_s=5)


def _locked(until: datetime, now: datetime) -> TooManyRequests:
    seconds = max(1, -int(-(until - now).total_seconds() // 1))
    return TooManyRequests(f"too many failed sign-ins: try again in {seconds} s", retry_after_s=seconds)
