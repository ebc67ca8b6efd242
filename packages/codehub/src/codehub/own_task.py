"""Runs a coroutine in a task of its own, and never loses a cancellation.

In Python 3.11, a task group that fails while it is being cancelled reports only the failure: a loop that handles it never
ends. It also leaves its task's cancellation count raised, so that only the count of another task is reliable.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


async def in_own_task(work: Coroutine[Any, Any, T]) -> T:
    """Return its result or raise its error; raise CancelledError if the caller was cancelled meanwhile."""
    task = asyncio.current_task()
    assert task is not None
    before = task.cancelling()
    try:
        return await asyncio.create_task(work)
    finally:
        if task.cancelling() > before:
            raise asyncio.CancelledError
