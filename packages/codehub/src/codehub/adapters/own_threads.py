"""Threads of one backend. One that hangs occupies only its own: with shared threads, it would hold up all the others."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


class OwnThreads:
    def __init__(self, name: str, most: int) -> None:
        self._pool = ThreadPoolExecutor(most, thread_name_prefix=name)

    async def run(self, work: Callable[[], T]) -> T:
        """Run short blocking work. If the caller is cancelled, work that has begun is left to end by itself."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)
