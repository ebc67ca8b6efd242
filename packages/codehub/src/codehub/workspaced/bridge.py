"""Forwards a Unix socket to an IDE that can listen only on a port of the workspace's loopback.

Runs as a separate process, so that the IDE's connections survive when `workspaced` dies. It starts beside the IDE, whose
first page waits for both: a loop of its own takes a third of the CPU time that importing asyncio would take.
"""

from __future__ import annotations

import errno
import select
import socket
from contextlib import suppress
from functools import partial

from . import netports
from .listening import listen
from .relay import Relay

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, NoReturn

_MOST_CONNECTIONS = 4096
_SHORT_PAUSE_S = 0.05
# SYN packets that are sent again, for a listener with a full queue: it gives up after 15 s.
_CONNECT_RETRIES = 3


def run(path: str, port: int) -> NoReturn:
    """Run the bridge from a socket to a port."""
    Bridge(listen(f"unix:{path}"), port).run()


class Bridge:
    def __init__(self, listener: socket.socket, port: int) -> None:
        listener.setblocking(False)
        self._listener = listener
        self._port = port
        self._loop = Loop()
        self._open = 0

    def run(self) -> NoReturn:
        self._loop.add_reader(self._listener, self._accept)
        while True:
            self._loop.run_once()

    def _accept(self) -> None:
        try:
            client, _ = self._listener.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return
        except OSError:
            # No descriptors left. Open connections continue.
            self._loop.remove_reader(self._listener)
            self._loop.call_later(_SHORT_PAUSE_S, lambda: self._loop.add_reader(self._listener, self._accept))
            return
        if self._open >= _MOST_CONNECTIONS:
            client.close()
            return
        client.setblocking(False)
        self._open += 1
        self._connect(client, netports.addresses(self._port) or ["127.0.0.1", "::1"])

    def _connect(self, client: socket.socket, addresses: list[str]) -> None:
        """Connect to the first address that accepts. If none does, close the client at once, like a refusal."""
        while addresses:
            address, *addresses = addresses
            other = self._begin_to_connect(address)
            if other is not None:
                self._loop.add_writer(other, partial(self._connected, client, other, addresses))
                return
        client.close()
        self._open -= 1

    def _begin_to_connect(self, address: str) -> socket.socket | None:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        try:
            other = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        except OSError:
            return None
        with suppress(OSError):
            other.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            other.setsockopt(socket.IPPROTO_TCP, socket.TCP_SYNCNT, _CONNECT_RETRIES)
            if other.connect_ex((address, self._port)) in (0, errno.EINPROGRESS):
                return other
        other.close()
        return None

    def _connected(self, client: socket.socket, other: socket.socket, rest: list[str]) -> None:
        self._loop.remove_writer(other)
        if other.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) != 0:
            other.close()
            self._connect(client, rest)
            return

        def ended() -> None:
            client.close()
            other.close()
            self._open -= 1

        Relay(self._loop, client, other, ended).start()


class Loop:
    """An event loop of epoll(7) and callbacks."""

    def __init__(self) -> None:
        self._poll = select.epoll()
        self._watched: dict[int, _Watched] = {}
        self._later: Callable[[], None] | None = None
        self._later_s = -1.0

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> None:
        """Call back after the next event, or after this delay if there is none. One callback at a time."""
        self._later, self._later_s = callback, delay_s

    def run_once(self) -> None:
        """Wait for events, and call back for each."""
        ready = [(self._watched[fd], fd, events) for fd, events in self._poll.poll(self._later_s)]
        later, self._later, self._later_s = self._later, None, -1.0
        for watched, fd, events in ready:
            # A callback may have closed another socket, and a new one may have its number.
            if events & ~select.EPOLLOUT and watched.reader is not None and self._watched.get(fd) is watched:
                watched.reader()
            if events & ~select.EPOLLIN and watched.writer is not None and self._watched.get(fd) is watched:
                watched.writer()
        if later is not None:
            later()

    def add_reader(self, sock: socket.socket, callback: Callable[[], None]) -> None:
        watched = self._watched.get(sock.fileno()) or _Watched()
        watched.reader = callback
        self._watch(sock.fileno(), watched)

    def add_writer(self, sock: socket.socket, callback: Callable[[], None]) -> None:
        watched = self._watched.get(sock.fileno()) or _Watched()
        watched.writer = callback
        self._watch(sock.fileno(), watched)

    def remove_reader(self, sock: socket.socket) -> None:
        watched = self._watched.get(sock.fileno())
        if watched is not None and watched.reader is not None:
            watched.reader = None
            self._watch(sock.fileno(), watched)

    def remove_writer(self, sock: socket.socket) -> None:
        watched = self._watched.get(sock.fileno())
        if watched is not None and watched.writer is not None:
            watched.writer = None
            self._watch(sock.fileno(), watched)

    def _watch(self, fd: int, watched: _Watched) -> None:
        reads, writes = watched.reader is not None, watched.writer is not None
        wanted = (select.EPOLLIN if reads else 0) | (select.EPOLLOUT if writes else 0)
        if not wanted:
            # Also with no events wanted, epoll would report a closed connection again and again.
            self._poll.unregister(fd)
            del self._watched[fd]
        elif fd in self._watched:
            self._poll.modify(fd, wanted)
        else:
            self._poll.register(fd, wanted)
            self._watched[fd] = watched


class _Watched:
    __slots__ = ("reader", "writer")

    def __init__(self) -> None:
        self.reader: Callable[[], None] | None = None
        self.writer: Callable[[], None] | None = None
