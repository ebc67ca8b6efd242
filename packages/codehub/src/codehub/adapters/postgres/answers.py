"""Cuts connections whose server does not answer.

A server that is frozen, or whose disk hangs, keeps its connections open and never answers. Its own statement timeout does
not help then, nor do TCP keep-alives, and the driver waits without a limit.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Iterator
from typing import Any

import psycopg
from psycopg import AsyncConnection
from psycopg.rows import DictRow

# A process that was frozen itself must first read the answers that arrived meanwhile.
_GRACE_S = 1.0


class AnsweredConnection(AsyncConnection[DictRow]):
    """A connection on which every exchange with the server has a time limit."""

    answer_s: float = (
        20.0  # more than the server's own limit for a statement: a server that works has answered by then
    )

    async def wait(self, *args: Any, **kwargs: Any) -> Any:
        task = asyncio.current_task()
        cancelled_before = task.cancelling() if task is not None else 0
        try:
            with cut_after(self, self.answer_s):
                return await super().wait(*args, **kwargs)
        except psycopg.Error as error:
            # A cancelled task waits until the server has ended its statement. If the connection ends first, the driver
            # raises that error in place of the cancellation, and the task would go on.
            if task is not None and task.cancelling() > cancelled_before:
                raise asyncio.CancelledError from error
            raise


@contextlib.contextmanager
def cut_after(connection: AsyncConnection[Any], limit_s: float) -> Iterator[None]:
    """Cut the connection if the block takes longer. The driver then reports that the server closed it."""
    loop = asyncio.get_running_loop()
    timer = loop.call_later(limit_s, lambda: expired())

    def expired() -> None:
        nonlocal timer
        timer = loop.call_later(_GRACE_S, _cut, connection)

    try:
        yield
    finally:
        timer.cancel()


def _cut(connection: AsyncConnection[Any]) -> None:
    # The descriptor belongs to the driver, so it is shut down through a copy and never closed here.
    with (
        contextlib.suppress(OSError, psycopg.Error),  # it was closed meanwhile
        socket.socket(fileno=os.dup(connection.fileno())) as copy,
    ):
        copy.shutdown(socket.SHUT_RDWR)
