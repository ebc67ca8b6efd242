"""Moves the bytes of a fast stream from socket to socket inside the kernel (splice(2)), without a copy in Python.

The transports stay in charge of everything but the bytes: of each side's end, of errors and of closing. While one direction
carries much, its source's transport is paused and the bytes move through a pipe. At the end of the data, at an error and
after a second of silence this stops, and the transport continues where it left off.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import socket
from collections.abc import Callable
from typing import Final, NamedTuple

# The most that an unprivileged process may give a pipe (fs.pipe-max-size): fewer system calls per gigabyte.
PIPE_SIZE: Final = 1 << 20
# Received at once, this much is a transfer and not somebody typing.
BULK: Final = 32 << 10
_SILENCE_S: Final = 1.0
_IDLE_PIPES: Final = 8
_FLAGS: Final = os.SPLICE_F_MOVE | os.SPLICE_F_NONBLOCK


class Pipe(NamedTuple):
    read: int
    write: int

    def close(self) -> None:
        os.close(self.read)
        os.close(self.write)


class Pipes:
    """Empty pipes for reuse. A direction has one only while bytes are in it, so idle streams have none."""

    def __init__(self) -> None:
        self._empty: list[Pipe] = []

    def __len__(self) -> int:
        return len(self._empty)

    def take(self) -> Pipe:
        """Raises OSError when the process has too many open files."""
        if self._empty:
            return self._empty.pop()
        pipe = Pipe(*os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC))
        with contextlib.suppress(OSError):  # beyond the user's limit for all pipes it stays at its default size
            fcntl.fcntl(pipe.write, fcntl.F_SETPIPE_SZ, PIPE_SIZE)
        return pipe

    def put(self, pipe: Pipe) -> None:
        """Return a pipe, which must be empty: its next user would forward what it holds."""
        if len(self._empty) < _IDLE_PIPES:
            self._empty.append(pipe)
        else:
            pipe.close()

    def close(self) -> None:
        while self._empty:
            self._empty.pop().close()


class Splice:
    """One direction of a stream while it carries much.

    `count` receives the number of bytes read. `stopped` is called when the source's transport is to read again, with
    whether the target failed.
    """

    __slots__ = (
        "_count",
        "_ended",
        "_first",
        "_full",
        "_held",
        "_loop",
        "_moved",
        "_pipe",
        "_pipes",
        "_source",
        "_stopped",
        "_target",
        "_timer",
        "_waits",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        pipes: Pipes,
        source: socket.socket,
        target: socket.socket,
        count: Callable[[int], None] | None,
        stopped: Callable[[bool], None],
    ) -> None:
        """Duplicates both descriptors, because a loop does not watch those that belong to its transports.

        Raises OSError when the process has too many open files.
        """
        if target.family == socket.AF_UNIX:
            # Its default of 208 KB is a fraction of TCP's, and it is writable again only when three quarters are free:
            # on a busy machine the reader would wait for us after every 50 KB.
            target.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, PIPE_SIZE)
        self._loop = loop
        self._pipes = pipes
        self._count = count
        self._stopped = stopped
        self._first = b""  # read by the transport, and not yet sent
        self._pipe: Pipe | None = None
        self._held = 0  # bytes in the pipe
        self._ended = False  # the source has ended or failed
        self._full = False  # the pipe takes no more; the source is not watched
        self._waits = False  # the target takes no more; it is watched
        self._moved = True
        self._timer: asyncio.TimerHandle | None = None
        self._source = os.dup(source.fileno())
        try:
            self._target = os.dup(target.fileno())
        except OSError:
            os.close(self._source)
            raise

    def start(self, first: bytes) -> None:
        """`first` was read by the transport and precedes everything else."""
        self._first = first
        self._timer = self._loop.call_later(_SILENCE_S, self._check_silence)
        self._loop.add_reader(self._source, self._readable)
        self._push()

    def stop(self, *, target_failed: bool = False) -> None:
        """Let go of both sockets. Bytes that the target has not taken are dropped: a side is gone."""
        if self._timer is None:
            return
        self._timer.cancel()
        self._timer = None
        self._loop.remove_reader(self._source)
        self._loop.remove_writer(self._target)
        os.close(self._source)
        os.close(self._target)
        if self._pipe is not None:
            self._pipe.close()
            self._pipe = None
        self._stopped(target_failed)

    def _check_silence(self) -> None:
        if self._moved or self._waits:
            self._moved = False
            self._timer = self._loop.call_later(_SILENCE_S, self._check_silence)
        else:
            self.stop()

    def _readable(self) -> None:
        try:
            if self._pipe is None:
                self._pipe = self._pipes.take()
            size = os.splice(self._source, self._pipe.write, PIPE_SIZE, flags=_FLAGS)
        except BlockingIOError:
            if self._held:
                self._full = True
                self._loop.remove_reader(self._source)
            return
        except OSError:  # the transport meets the same error, or reads on without a pipe
            size = 0
        if not size:
            self._ended = True
            self._loop.remove_reader(self._source)
        else:
            self._held += size
            self._moved = True
            if self._count is not None:
                self._count(size)
        if not self._waits:
            self._push()

    def _push(self) -> None:
        """Send as much as the target takes, and watch it while there is more. An empty pipe is returned at once."""
        try:
            while self._first:
                self._first = self._first[os.write(self._target, self._first) :]
            while self._held and self._pipe is not None:
                self._held -= os.splice(self._pipe.read, self._target, self._held, flags=_FLAGS)
        except BlockingIOError:
            if not self._waits:
                self._waits = True
                self._loop.add_writer(self._target, self._push)
        except OSError:
            self.stop(target_failed=True)
            return
        else:
            if self._waits:
                self._waits = False
                self._loop.remove_writer(self._target)
            if self._pipe is not None:
                self._pipes.put(self._pipe)
                self._pipe = None
            if self._ended:
                self.stop()
                return
        if self._full:
            self._full = False
            self._loop.add_reader(self._source, self._readable)
