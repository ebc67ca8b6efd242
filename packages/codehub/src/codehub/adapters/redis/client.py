"""Creates every connection to Redis, and translates the driver's errors. No other module does."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from redis import asyncio as redis
from redis import exceptions

from codehub.domain.errors import BackendDown

# A hint that takes longer than this is worth less than the next one.
_TIMEOUT_S = 5.0


def connect(url: str) -> redis.Redis:
    """Return a client with a connection pool. It connects on first use and reconnects as needed."""
    return redis.Redis.from_url(
        url,
        socket_timeout=_TIMEOUT_S,
        socket_connect_timeout=_TIMEOUT_S,
        health_check_interval=15,
        decode_responses=True,
    )


@contextmanager
def translated() -> Iterator[None]:
    """Translate driver errors raised inside into BackendDown.

    A cancellation that the driver took for a timeout leaves as a cancellation.
    """
    try:
        yield
    except (exceptions.RedisError, OSError, TimeoutError) as error:
        refuse_to_swallow()
        raise BackendDown(f"Redis does not answer: {error}") from error
    refuse_to_swallow()


def refuse_to_swallow() -> None:
    """Raise CancelledError if redis-py lost a cancellation while connecting. The task still knows that it was cancelled."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError
