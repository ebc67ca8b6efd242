"""Decides which transfers of homes run now, and lets users take turns (domain/turns.py).

A transfer may take ten minutes, and one user can archive, delete or restore many workspaces at once. One that has to wait
occupies no worker of the controller and does not come nearer to its timeout: its attempt ends with `NotYourTurn`, and its
workspace is queued again when it is its turn.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum
from itertools import count

from codehub.domain.turns import next_turn


class Direction(Enum):
    ARCHIVE = "archive"
    RESTORE = "restore"


class NotYourTurn(Exception):
    """Others are being transferred. Not a failure: the attempt is repeated."""


class TransferTurns:
    """One direction. Keys are workspaces, holders their owners."""

    def __init__(self, most: int, wake: Callable[[str], None]) -> None:
        self._most = most
        self._wake = wake
        self._running: dict[str, str] = {}
        self._waiting: dict[str, str] = {}  # in order of arrival
        self._served: dict[str, int] = {}  # only of those who run or wait
        self._numbers = count(1)
        self._asked: set[str] = set()

    @contextmanager
    def turn(self, key: str, holder: str) -> Iterator[None]:
        self._asked.add(key)
        self._waiting.setdefault(key, holder)
        if self._next() != key:
            raise NotYourTurn
        del self._waiting[key]
        self._running[key] = holder
        self._served[holder] = next(self._numbers)
        self._wake_next()
        try:
            yield
        finally:
            del self._running[key]
            self._forget(holder)
            self._wake_next()

    def settle(self, key: str) -> None:
        """Call this after each run of a key: one that did not ask for a turn any more gives up its place."""
        if key in self._asked:
            self._asked.discard(key)
        elif key in self._waiting:
            self._forget(self._waiting.pop(key))
            self._wake_next()

    def _next(self) -> str | None:
        """The key that may run now, if one may."""
        if len(self._running) >= self._most:
            return None
        holders = dict.fromkeys(self._waiting.values())
        holder = next_turn(holders, Counter(self._running.values()), self._served)
        return next((key for key, its in self._waiting.items() if its == holder), None)

    def _wake_next(self) -> None:
        if (key := self._next()) is not None:
            self._wake(key)

    def _forget(self, holder: str) -> None:
        if holder not in self._running.values() and holder not in self._waiting.values():
            self._served.pop(holder, None)
