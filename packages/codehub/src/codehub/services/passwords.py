"""Passwords and secrets: argon2id for user-chosen passwords, sha256 for generated ones (256 random bits need no slow hash).

Hashing costs tens of milliseconds and 64 MB each, so it runs in a thread with limited concurrency and a bounded queue.
Users who sign in where they did before have a queue of their own: guesses from elsewhere, however many, do not fill it.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

from codehub.domain.errors import TooManyRequests

TOKEN_PREFIX = "cht_"  # noqa: S105 - a prefix that identifies leaked tokens, not a secret

# The longest password that needs no significant memory.
SHORTEST, LONGEST = 8, 1_024

_T = TypeVar("_T")

# Concurrent hashes use 64 MB each. A queue holds a few seconds of work; more is an attack or overload.
_STRANGERS_AT_ONCE = 2
_FAMILIAR_AT_ONCE = 1
_MAY_WAIT = 64


def new_secret() -> str:
    return secrets.token_urlsafe(32)


def new_token() -> str:
    return TOKEN_PREFIX + new_secret()


def hash_secret(secret: str) -> bytes:
    # A header may contain bytes that are not UTF-8. They have a digest like any other, which matches nothing.
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).digest()


class _Queue:
    def __init__(self, at_once: int) -> None:
        self._slots = asyncio.Semaphore(at_once)
        self._waiting = 0

    async def run(self, work: Callable[[], _T]) -> _T:
        if self._waiting >= _MAY_WAIT:
            raise TooManyRequests("too many sign-ins at once: try again in a moment", retry_after_s=2)
        self._waiting += 1
        try:
            async with self._slots:
                return await asyncio.to_thread(work)
        finally:
            self._waiting -= 1


@dataclass(slots=True)
class Passwords:
    hasher: PasswordHasher = field(default_factory=PasswordHasher)
    _strangers: _Queue = field(default_factory=lambda: _Queue(_STRANGERS_AT_ONCE))
    # Also for those who are signed in.
    _familiar: _Queue = field(default_factory=lambda: _Queue(_FAMILIAR_AT_ONCE))
    _nobody: str = ""

    async def hash(self, password: str) -> str:
        return await self._familiar.run(lambda: self.hasher.hash(password))

    async def verify(self, password_hash: str | None, password: str, *, familiar: bool = False) -> bool:
        """Check a password. `familiar`: of a user at an address where this user signed in before.

        For an unknown user (None), a hash is checked as well, so that the answer takes equally long.
        """
        queue = self._familiar if familiar else self._strangers
        return await queue.run(lambda: self._verify(password_hash, password))

    def _verify(self, password_hash: str | None, password: str) -> bool:
        if not self._nobody:
            self._nobody = self.hasher.hash(new_secret())
        try:
            return self.hasher.verify(password_hash or self._nobody, password) and password_hash is not None
        except (VerificationError, InvalidHashError):
            return False
