"""A file lock that waits only so long, and says who holds it when it gives up.

Three kinds use it: the registry's (held for one write), the start lock (held while a daemon starts, by the starter
and the daemon together) and a daemon's lifetime lock.
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
# Long enough to cost nothing while fifty wait, short enough that nobody sees it.
_LONGEST_PAUSE_S = 0.05
# A holder that was stopped for so long will not go on by itself.
_STOPPED_TIMEOUT_S = 2.0


class LockHeld(Transient):
    """Someone else held the lock for longer than we may wait."""

    def __init__(self, path: str, holder: int | None, waited_s: float) -> None:
        self.holder = holder
        who = f"process {holder}" if holder else "another process"
        stop = f" If that process hangs or is stopped, end it (kill -9 {holder})." if holder else ""
        super().__init__(f"{path} has been locked by {who} for more than {waited_s:.0f} seconds.{stop}")


class FileLock:
    """An exclusive lock on a file, released when closed or when the last process that has it dies."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._descriptor: int | None = None

    def acquire(self, wait_s: float) -> None:
        """Take the lock, waiting at most so long. Raises `LockHeld`."""
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
        """Take the lock if it is free now."""
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
        """The open file, to be given to a child that shall hold the lock too."""
        assert self._descriptor is not None
        return self._descriptor

    def adopt(self, descriptor: int) -> None:
        """Hold a lock that was taken by the parent process."""
        self._descriptor = descriptor
        self.sign(str(os.getpid()))

    def release(self) -> None:
        """Close our end of the lock."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def __enter__(self) -> FileLock:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def sign(self, text: str) -> None:
        """Write down who holds it, for those who wait. A full disk keeps nobody from the lock."""
        with contextlib.suppress(OSError):
            os.ftruncate(self.descriptor, 0)
            os.lseek(self.descriptor, 0, os.SEEK_SET)
            os.write(self.descriptor, text.encode())

    def holder(self) -> int | None:
        """Who signed the lock last, if that can be read."""
        try:
            with open(self.path, encoding="ascii") as file:
                return int(file.read(20))
        except (OSError, ValueError):
            return None
