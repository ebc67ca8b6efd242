"""How every connection to Redis is made, and the one place where its driver's errors become ours."""

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
    """A client on a pool; it connects when it is first used, and again whenever it must."""
    return redis.Redis.from_url(
        url,
        socket_timeout=_TIMEOUT_S,
        socket_connect_timeout=_TIMEOUT_S,
        health_check_interval=15,
        decode_responses=True,
    )


@contextmanager
def translated() -> Iterator[None]:
    """Driver errors raised inside leave as BackendDown; a cancellation the driver took for a time-out leaves as one."""
    try:
        yield
    except (exceptions.RedisError, OSError, TimeoutError) as error:
        refuse_to_swallow()
        raise BackendDown(f"Redis does not answer: {error}") from error
    refuse_to_swallow()


def refuse_to_swallow() -> None:
    """redis-py loses a cancellation that arrives while it connects; the task still knows that it was asked to end."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError
