"""The link to CodeHub: one connection that CodeHub opens and keeps, with JSON objects as lines in both directions.

A workspace often cannot reach CodeHub, because its network is isolated, but CodeHub always reaches its workspaces. CodeHub
therefore connects with the secret of this start, sends what to set up, and answers requests: a credential for a git host, a
signature by the owner's key. The workspace never holds a secret that gives access to CodeHub.
"""

from __future__ import annotations

import asyncio
import json
from typing import Callable

from .http1 import Connection

_LONGEST_LINE = 4 << 20
# CodeHub may be restarting: a `git push` waits for it instead of failing.
_TIMEOUT_S = 30.0
_MOST_WAITING = 256


class LinkError(Exception):
    """Raised if CodeHub did not answer or refused. The message is for the user."""


class Link:
    """The connection.

    `take` gets every message that is not an answer; `greet` returns the first message of a new connection.
    """

    def __init__(
        self, take: Callable[[dict[str, object]], None], greet: Callable[[], list[dict[str, object]]]
    ) -> None:
        self._take = take
        self._greet = greet
        self._connection: Connection | None = None
        self._there = asyncio.Event()
        self._answers: dict[int, asyncio.Future[dict[str, object]]] = {}
        self._number = 0
        self._writing = asyncio.Lock()

    async def serve(self, connection: Connection) -> None:
        """Serve until CodeHub disconnects. A newer connection replaces an older one."""
        old, self._connection = self._connection, connection
        if old is not None:
            old.sock.close()
        self._there.set()
        try:
            for message in self._greet():
                await self._send(message)
            await self._read(connection)
        finally:
            if self._connection is connection:
                self._connection = None
                self._there.clear()
            for waiting in self._answers.values():
                if not waiting.done():
                    waiting.set_exception(LinkError("CodeHub closed the connection before it answered"))
            self._answers.clear()

    async def _read(self, connection: Connection) -> None:
        ahead = bytearray()
        while True:
            data = await connection.read()
            if not data:
                return
            ahead += data
            while True:
                line, newline, rest = bytes(ahead).partition(b"\n")
                if not newline:
                    break
                ahead = bytearray(rest)
                self._dispatch(line)
            if len(ahead) > _LONGEST_LINE:
                return

    def _dispatch(self, line: bytes) -> None:
        try:
            message = json.loads(line)
        except (ValueError, RecursionError):
            return
        if not isinstance(message, dict):
            return
        number = message.get("answer")
        if isinstance(number, int):
            waiting = self._answers.pop(number, None)
            if waiting is not None and not waiting.done():
                waiting.set_result(message)
        else:
            self._take(message)

    async def _send(self, message: dict[str, object]) -> None:
        connection = self._connection
        if connection is None:
            raise LinkError("CodeHub is not connected")
        async with self._writing:
            await connection.write(json.dumps(message).encode() + b"\n")

    async def tell(self, message: dict[str, object]) -> None:
        """Send if CodeHub is connected. A new connection starts with the current state anyway."""
        try:
            await self._send(message)
        except (LinkError, OSError):
            pass

    async def ask(
        self, what: str, fields: dict[str, object] | None = None, timeout_s: float = _TIMEOUT_S
    ) -> dict[str, object]:
        """Return the answer's `value`. Waits for CodeHub to connect, and retries once if it disconnects meanwhile."""
        if len(self._answers) >= _MOST_WAITING:
            raise LinkError("too many requests at once")
        try:
            return await asyncio.wait_for(self._ask(what, fields or {}), timeout_s)
        except asyncio.TimeoutError:
            raise LinkError("CodeHub does not answer: try again in a moment") from None

    async def _ask(self, what: str, fields: dict[str, object]) -> dict[str, object]:
        while True:
            await self._there.wait()
            self._number += 1
            number = self._number
            waiting = self._answers[number] = asyncio.get_running_loop().create_future()
            try:
                await self._send({"ask": what, "id": number, **fields})
                message = await waiting
            except (LinkError, OSError):
                await asyncio.sleep(0.1)
                continue
            finally:
                self._answers.pop(number, None)
            if isinstance(message.get("error"), str):
                raise LinkError(str(message["error"]))
            value = message.get("value")
            return value if isinstance(value, dict) else {}
