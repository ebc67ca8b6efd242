"""Relays bytes between two sockets in both directions, with half-close and back-pressure, by callbacks of any loop.

Imports little: the first page of some IDEs waits for the bridge, which has a loop without asyncio.
"""

from __future__ import annotations

import socket

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Protocol

    class Loop(Protocol):
        """The part of an event loop that a relay needs."""

        def add_reader(self, fd: socket.socket, callback: Callable[[], None], /) -> object: ...
        def add_writer(self, fd: socket.socket, callback: Callable[[], None], /) -> object: ...
        def remove_reader(self, fd: socket.socket, /) -> object: ...
        def remove_writer(self, fd: socket.socket, /) -> object: ...


_READ = 256 << 10


class Relay:
    """Runs until both sides have closed, or one has failed. Then it calls `ended` once. Closes neither socket."""

    __slots__ = ("_down", "_ended", "_is_over", "_loop", "_sockets", "_up")

    def __init__(self, loop: Loop, one: socket.socket, other: socket.socket, ended: Callable[[], None]) -> None:
        self._loop = loop
        self._sockets = (one, other)
        self._ended = ended
        self._is_over = False
        self._up = _Direction(self, loop, one, other)
        self._down = _Direction(self, loop, other, one)

    def start(self, read_ahead: bytes = b"") -> None:
        """`read_ahead` was already read from the first socket."""
        self._down.start(b"")
        self._up.start(read_ahead)

    def stop(self) -> None:
        self._is_over = True
        for sock in self._sockets:
            self._loop.remove_reader(sock)
            self._loop.remove_writer(sock)

    def finish(self) -> None:
        if not self._is_over:
            self.stop()
            self._ended()

    def finish_if_both_ended(self) -> None:
        if self._up.ended and self._down.ended:
            self.finish()

    @property
    def is_over(self) -> bool:
        return self._is_over


class _Direction:
    """Moves bytes from one socket to the other. Reads again only when everything was sent.

    Callbacks instead of coroutines: a small request takes half the time.
    """

    __slots__ = ("_loop", "_relay", "_rest", "_source", "_target", "ended")

    def __init__(self, relay: Relay, loop: Loop, source: socket.socket, target: socket.socket) -> None:
        self._relay = relay
        self._loop = loop
        self._source = source
        self._target = target
        self._rest = b""  # received, and not yet sent
        self.ended = False

    def start(self, first: bytes) -> None:
        self._loop.add_reader(self._source, self._readable)
        if first:
            self._send(first)

    def _readable(self) -> None:
        try:
            data = self._source.recv(_READ)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            self._relay.finish()
            return
        if data:
            self._send(data)
            return
        self._loop.remove_reader(self._source)
        self.ended = True
        try:
            self._target.shutdown(socket.SHUT_WR)
        except OSError:
            self._relay.finish()
        self._relay.finish_if_both_ended()

    def _send(self, data: bytes) -> None:
        self._rest = self._unsent(data)
        if self._rest:
            self._loop.remove_reader(self._source)
            self._loop.add_writer(self._target, self._writable)

    def _writable(self) -> None:
        self._rest = self._unsent(self._rest)
        if not self._rest and not self._relay.is_over:
            self._loop.remove_writer(self._target)
            self._loop.add_reader(self._source, self._readable)

    def _unsent(self, data: bytes) -> bytes:
        try:
            return data[self._target.send(data) :]
        except (BlockingIOError, InterruptedError):
            return data
        except OSError:
            self._relay.finish()
            return b""
