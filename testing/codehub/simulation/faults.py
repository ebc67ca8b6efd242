"""Fault injection for one coordinator process: every call may crash, freeze, be delayed or fail.

A crash is not a cancellation: from that moment, nothing that the process still does reaches the world, including its
clean-up.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import random
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

from codehub.domain.errors import BackendDown, Transient


@dataclass(frozen=True, slots=True)
class Dice:
    """The probability of each fault at one call."""

    crash: float = 0.001
    freeze: float = 0.0015
    fail_before: float = 0.004
    lose_answer: float = 0.004
    slow: float = 0.02
    lie_late: float = 0.05
    lose_notice: float = 0.2
    longest_freeze_s: float = 30.0

    @classmethod
    def none(cls) -> Dice:
        return cls(0, 0, 0, 0, 0, 0, 0, 0)


class Process:
    def __init__(self, name: str, dice: random.Random, count: Callable[[str], None]) -> None:
        self.name = name
        self.odds = Dice()
        self.dead = False
        self.steps = 0
        self.crashed = asyncio.Event()
        self._dice = dice
        self._count = count
        self._thawed: asyncio.Event | None = None

    def crash(self) -> None:
        self.dead = True
        self.crashed.set()

    def freeze(self, seconds: float) -> None:
        if self._thawed is None:
            self._thawed = asyncio.Event()
            asyncio.get_running_loop().call_later(seconds, self.thaw)

    def thaw(self) -> None:
        if self._thawed is not None:
            self._thawed.set()
            self._thawed = None

    @property
    def frozen(self) -> bool:
        return self._thawed is not None

    async def reach(self) -> None:
        """Wait while frozen; never return once dead."""
        while self._thawed is not None or self.dead:
            if self.dead:
                await asyncio.Event().wait()
            elif self._thawed is not None:
                await self._thawed.wait()

    async def inject(self) -> None:
        """Crash or freeze between any two awaits."""
        self.steps += 1
        roll = self._dice.random()
        if roll < self.odds.crash:
            self._count("crash")
            self.crash()
        elif roll < self.odds.crash + self.odds.freeze:
            self._count("freeze")
            self.freeze(self._dice.uniform(1, self.odds.longest_freeze_s))
        await self.reach()

    async def call(self, what: Callable[[], Any], *, may_fail: bool) -> Any:
        await self.inject()
        odds, roll = self.odds, self._dice.random()
        if roll < odds.slow:
            self._count("slow")
            await asyncio.sleep(self._dice.uniform(0.05, 3))
            await self.reach()
        elif may_fail and roll < odds.slow + odds.fail_before:
            self._count("fails before")
            raise self._error()
        result = await what()
        if may_fail and self._dice.random() < odds.lose_answer:
            self._count("answer lost")
            raise self._error()
        await self.inject()
        return result

    def _error(self) -> Exception:
        return self._dice.choice([Transient("by chance"), BackendDown("by chance")])

    def lies_late(self) -> bool:
        return self._dice.random() < self.odds.lie_late

    def loses_notice(self) -> bool:
        return self._dice.random() < self.odds.lose_notice


class Faulty:
    """Any port, through one process's faults. Listings may be stale: an older answer instead of a newer one."""

    def __init__(self, inner: Any, process: Process, *, may_fail: bool = True) -> None:
        self._inner = inner
        self._process = process
        self._may_fail = may_fail
        self._old_listing: Any = None

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._inner, name)
        wrapped: Any = attribute
        if inspect.iscoroutinefunction(attribute):
            wrapped = self._listing(attribute) if name == "list_all" else self._call(attribute)
        elif inspect.isasyncgenfunction(attribute):
            wrapped = self._stream(attribute, name)
        if wrapped is not attribute:
            self.__dict__[name] = wrapped
        return wrapped

    def _call(self, method: Callable[..., Any]) -> Callable[..., Any]:
        process, may_fail = self._process, self._may_fail

        @functools.wraps(method)
        async def call(*args: Any, **kwargs: Any) -> Any:
            return await process.call(lambda: method(*args, **kwargs), may_fail=may_fail)

        return call

    def _listing(self, method: Callable[..., Any]) -> Callable[..., Any]:
        async def call() -> Any:
            fresh = await self._process.call(method, may_fail=self._may_fail)
            listing = fresh
            if self._old_listing is not None and self._process.lies_late():
                listing = self._old_listing
            self._old_listing = fresh
            return listing

        return call

    def _stream(self, method: Callable[..., Any], name: str) -> Callable[..., Any]:
        process = self._process
        lossy = name in ("listen", "watch")

        async def stream(*args: Any, **kwargs: Any) -> AsyncIterator[Any]:
            await process.inject()
            async for item in method(*args, **kwargs):
                await process.reach()
                if lossy and item is not None and process.loses_notice():
                    continue
                yield item

        return stream
