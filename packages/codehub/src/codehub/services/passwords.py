"""Passwords and secrets: argon2id for user-chosen passwords, sha256 for generated ones (256 random bits need no slow hash).

Hashing costs tens of milliseconds and 64 MB each, so it runs in a thread with limited concurrency and a bounded queue.
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

# Concurrent hashes use 64 MB each. The queue holds a few seconds of work; more is an attack or overload.
_AT_ONCE = 2
_MAY_WAIT = 64


def new_secret() -> str:
    return secrets.token_urlsafe(32)


def new_token() -> str:
    return TOKEN_PREFIX + new_secret()


def hash_secret(secret: str) -> bytes:
    # A header may contain bytes that are not UTF-8. They have a digest like any other, which matches nothing.
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).digest()


@dataclass(slots=True)
class Passwords:
    hasher: PasswordHasher = field(default_factory=PasswordHasher)
    _slots: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_AT_ONCE))
    _waiting: int = 0
    _nobody: str = ""

    async def hash(self, password: str) -> str:
        return await self._in_turn(lambda: self.hasher.hash(password))

    async def verify(self, password_hash: str | None, password: str) -> bool:
        """Check a password.

        For an unknown user (None), a hash is checked as well, so that the answer takes equally long.
        """
        return await self._in_turn(lambda: self._verify(password_hash, password))

    def _verify(self, password_hash: str | None, password: str) -> bool:
        if not self._nobody:
            self._nobody = self.hasher.hash(new_secret())
        try:
            return self.hasher.verify(password_hash or self._nobody, password) and password_hash is not None
        except (VerificationError, InvalidHashError):
            return False

    async def _in_turn(self, work: Callable[[], _T]) -> _T:
        if self._waiting >= _MAY_WAIT:
            raise TooManyRequests("too many sign-ins at once: try again in a moment", retry_after_s=2)
        self._waiting += 1
        try:
            async with self._slots:
                return await asyncio.to_thread(work)
        finally:
            self._waiting -= 1
