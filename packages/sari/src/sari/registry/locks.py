"""A file lock with a bounded wait that reports the holder when it gives up.

Three kinds of locks use it: the registry lock (held for one write), the start lock (held while a daemon starts, by the
starter and the daemon together) and a daemon's lifetime lock.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time

from sari.protocol.errors import SariError, Transient
from sari.registry.processes import is_stopped

if sys.platform == "win32":
    from sari.registry.locks_windows import is_locked, open_lock_file, try_lock
else:
    from sari.registry.locks_posix import is_locked, open_lock_file, try_lock

__all__ = ["FileLock", "LockHeld", "is_locked"]

_FIRST_PAUSE_S = 0.001
# Long enough to be cheap while fifty processes wait, short enough to be unnoticeable.
_LONGEST_PAUSE_S = 0.05
# A holder that has been stopped for this long will not resume by itself.
_STOPPED_TIMEOUT_S = 2.0


class LockHeld(Transient):
    """Raised when another process held the lock for longer than we may wait."""

    def __init__(self, path: str, holder: int | None, waited_s: float) -> None:
        self.holder = holder
        who = f"process {holder}" if holder else "another process"
        stop = f" If that process hangs or is stopped, end it (kill -9 {holder})." if holder else ""
        super().__init__(f"{path} has been locked by {who} for more than {waited_s:.0f} seconds.{stop}")


class FileLock:
    """An exclusive lock on a file, released when closed or when the last process that holds it dies."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._descriptor: int | None = None

    def acquire(self, wait_s: float) -> None:
        """Acquire the lock, waiting at most `wait_s`. Raises `LockHeld`."""
        begun = time.monotonic()
        pause = _FIRST_PAUSE_S
        while not self.try_acquire():
            waited_s = time.monotonic() - begun
            holder = self.holder() if waited_s >= min(wait_s, _STOPPED_TIMEOUT_S) else None
            if waited_s >= wait_s or (holder is not None and is_stopped(holder)):
                raise LockHeld(self.path, holder, waited_s)
            time.sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE_S)

    def try_acquire(self) -> bool:
        """Acquire the lock if it is free now."""
        try:
            descriptor = open_lock_file(self.path)
        except OSError as error:
            raise SariError(
                f"cannot open the lock {self.path} ({error.strerror}): make {os.path.dirname(self.path)} writable, "
                "or set SARI_REGISTRY_FILE to a file in a directory that is"
            ) from error
        if not try_lock(descriptor):
            os.close(descriptor)
            return False
        self._descriptor = descriptor
        self.sign(str(os.getpid()))
        return True

    @property
    def descriptor(self) -> int:
        """The open file's descriptor, to pass to a child that will also hold the lock."""
        assert self._descriptor is not None
        return self._descriptor

    def adopt(self, descriptor: int) -> None:
        """Take over a lock that the parent process acquired."""
        self._descriptor = descriptor
        self.sign(str(os.getpid()))

    def release(self) -> None:
        """Close this process's descriptor of the lock."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def __enter__(self) -> FileLock:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def sign(self, text: str) -> None:
        """Write the holder into the file for waiting processes. A full disk does not prevent locking."""
        with contextlib.suppress(OSError):
            os.ftruncate(self.descriptor, 0)
            os.lseek(self.descriptor, 0, os.SEEK_SET)
            os.write(self.descriptor, text.encode())

    def holder(self) -> int | None:
        """Return the pid of the last holder, if it can be read."""
        try:
            with open(self.path, encoding="ascii") as file:
                return int(file.read(20))
        except (OSError, ValueError):
            return None
