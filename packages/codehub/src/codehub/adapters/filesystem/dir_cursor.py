"""A position in a directory tree, held by descriptors: no path is resolved twice and no link is followed.

Walks and creates directories below one root. The last few levels are kept open, and the others are reopened when needed:
from the level below if that still leads to the same directory, else from the root.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

_OPEN_DIR = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
KEPT_OPEN = 64  # levels; far below the usual limit of 1,024 descriptors
# Each level takes some memory, and nobody uses that many.
_MOST_LEVELS = 100_000


def open_dir(name: str | Path, dir_fd: int | None = None) -> int:
    """Open a directory. If its mode denies access to us as the owner, change the mode temporarily."""
    try:
        return os.open(name, _OPEN_DIR, dir_fd=dir_fd)
    except PermissionError:
        return open_unreadable(name, _OPEN_DIR, 0o700, dir_fd)


def open_unreadable(name: str | Path, flags: int, needed: int, dir_fd: int | None) -> int:
    """Open a file or directory of ours whose mode denies that, by adding the permissions `needed` to it meanwhile.

    By a descriptor: the name may lead to another file by now.
    """
    found = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=dir_fd)
    try:
        mode = os.fstat(found).st_mode
        if stat.S_ISLNK(mode):
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(name))
        same = f"/proc/self/fd/{found}"
        os.chmod(same, stat.S_IMODE(mode) | needed)
        try:
            return os.open(same, flags & ~os.O_NOFOLLOW)
        finally:
            os.chmod(same, stat.S_IMODE(mode))
    except OSError as error:
        error.filename = str(name)  # not the descriptor's
        raise
    finally:
        os.close(found)


def look_into(name: str | Path, dir_fd: int | None = None) -> int:
    """Open a directory as it is. For a tree in use: changing modes there could be led to another file."""
    return os.open(name, _OPEN_DIR, dir_fd=dir_fd)


class DirCursor:
    """The current position below `root`. `fd` is the open directory there.

    With `holds`, directories that deny access to us as their owner allow it as long as the cursor is in or below them.
    Their mode is restored when it leaves.
    """

    def __init__(
        self, root: Path, *, open_dir: Callable[[str | Path, int | None], int] = open_dir, holds: bool = False
    ) -> None:
        self._open_dir = open_dir
        self._holds = holds and os.geteuid() != 0
        self._modes: dict[int, int] = {}  # by depth: those that were changed
        self._names: list[str] = []
        self._fds: list[int | None] = [open_dir(root, None)]
        self.fd: int = self._fds[0] if self._fds[0] is not None else -1
        self._closed: dict[int, tuple[int, int]] = {}  # by depth: which directory was open there
        self._hold(self.fd, 0, str(root))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None) -> None:
        with contextlib.suppress(OSError):  # an ancestor was moved meanwhile
            while self._names and self._modes:
                self.leave()
        for depth, fd in enumerate(self._fds):
            if fd is not None:
                with contextlib.suppress(OSError):
                    self._release(depth, fd)
                os.close(fd)
        self._fds.clear()

    @property
    def depth(self) -> int:
        return len(self._names)

    @property
    def mode(self) -> int:
        """The current directory's mode, regardless of what it was changed to."""
        held = self._modes.get(len(self._names))
        return stat.S_IMODE(os.fstat(self.fd).st_mode) if held is None else held

    @property
    def name(self) -> str:
        """The name of the current directory in its parent."""
        return self._names[-1]

    @property
    def root(self) -> int:
        assert self._fds[0] is not None
        return self._fds[0]

    @property
    def next_closed(self) -> int | None:
        """The descriptor that the next `enter` closes: of the level `KEPT_OPEN` above the new one."""
        stale = len(self._fds) - KEPT_OPEN
        return self._fds[stale] if stale > 0 else None

    def enter(self, name: str, *, make: bool = False) -> int:
        """Descend. With `make`, create a missing directory that only we can access until its final mode is set."""
        if len(self._names) >= _MOST_LEVELS:
            raise OSError(errno.ENAMETOOLONG, "directories are nested too deep", name)
        try:
            fd = self._open_dir(name, self.fd)
        except FileNotFoundError:
            if not make:
                raise
            os.mkdir(name, 0o700, dir_fd=self.fd)
            fd = self._open_dir(name, self.fd)
        self._hold(fd, len(self._names) + 1, name)
        self._names.append(name)
        self._fds.append(fd)
        self.fd = fd
        self._close_stale(len(self._fds) - 1)
        return fd

    def leave(self) -> int:
        """Go up one level."""
        gone = self._fds.pop()
        self._names.pop()
        if gone is not None:
            if self._fds[-1] is None:
                self._fds[-1] = self._above(gone)
            self._release(len(self._names) + 1, gone)
            os.close(gone)
        if self._fds[-1] is None:
            self._walk_again()
        fd = self._fds[-1]
        assert fd is not None
        self.fd = fd
        return fd

    def goto(self, parts: Sequence[str], *, make: bool = False) -> int:
        """Move to another position by the shortest path."""
        common = self.common(parts)
        self.ascend(common)
        for name in parts[common:]:
            self.enter(name, make=make)
        return self.fd

    def common(self, parts: Sequence[str]) -> int:
        """Return how many levels another position shares with this one."""
        for number, (mine, theirs) in enumerate(zip(self._names, parts, strict=False)):
            if mine != theirs:
                return number
        return min(len(self._names), len(parts))

    def ascend(self, depth: int) -> int:
        """Go up to a depth, if the position is below it."""
        while len(self._names) > depth:
            self.leave()
        return self.fd

    def _hold(self, fd: int, depth: int, name: str) -> None:
        if not self._holds:
            return
        try:
            found = os.fstat(fd)
            mode = stat.S_IMODE(found.st_mode)
            if mode & 0o500 != 0o500 and found.st_uid == os.geteuid():
                os.fchmod(fd, mode | 0o500)
                self._modes[depth] = mode
        except OSError as error:
            os.close(fd)
            error.filename = name
            raise

    def _release(self, depth: int, fd: int | None) -> None:
        mode = self._modes.pop(depth, None)
        if mode is None or fd is None:
            return
        # Its user may have changed it meanwhile: workspaces run while they are backed up.
        if os.fstat(fd).st_mode & 0o777 == (mode | 0o500) & 0o777:
            os.fchmod(fd, mode)

    def _above(self, fd: int) -> int | None:
        """Open the parent of a directory that is being left; None if it is not the one from which it was entered.

        One step: from the root, leaving a very deep tree would take a time that grows with the square of its depth.
        """
        depth = len(self._names)
        try:
            above = look_into("..", fd)  # changes no mode: it may be another directory by now
        except OSError:
            return None
        if _identity(above) == self._closed.get(depth):
            del self._closed[depth]
            return above
        os.close(above)
        return None

    def _close_stale(self, depth: int) -> None:
        """Close the level that is far enough above `depth`, and remember which directory it was."""
        stale = depth - KEPT_OPEN
        if stale > 0 and (old := self._fds[stale]) is not None:
            self._closed[stale] = _identity(old)
            os.close(old)
            self._fds[stale] = None

    def _walk_again(self) -> None:
        """Reopen the path from the root to here, keeping as many levels open as `enter` does."""
        above = self._fds[0]
        assert above is not None
        for depth, name in enumerate(self._names, start=1):
            fd = self._open_dir(name, above)
            was, self._fds[depth] = self._fds[depth], fd
            if was is not None:
                os.close(was)
            elif self._closed.pop(depth, None) != _identity(fd):
                raise OSError(errno.ESTALE, "a directory was replaced", name)
            self._close_stale(depth)
            above = fd


def _identity(fd: int) -> tuple[int, int]:
    found = os.fstat(fd)
    return found.st_dev, found.st_ino
