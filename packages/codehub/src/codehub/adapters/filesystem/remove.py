"""Removes a tree of any depth without following links, even while other processes still write into it."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
import time
from pathlib import Path
from typing import assert_never

from codehub.adapters.filesystem.dir_cursor import DirCursor, look_into, open_dir
from codehub.adapters.filesystem.walk import Kind, walk

_REMOVE_ATTEMPTS = 200  # 25 ms each: by then, a killed process's children are gone
# The errors of an entry that appeared or was replaced meanwhile.
_CHANGED = (errno.ENOTEMPTY, errno.EEXIST, errno.EBUSY, errno.EISDIR, errno.ENOTDIR, errno.ELOOP, errno.ESTALE)
_GONE = frozenset({errno.ENOENT})
# Levels. Deeper ones are moved; so many names take 15 MB.
_DEEPEST = 50_000
# A full disk, another project of a quota, a directory of an overlay's lower layer.
_REFUSED = (errno.EXDEV, errno.ENOSPC, errno.EDQUOT, errno.EMLINK)


def remove_tree(path: Path) -> None:
    """Remove a tree or a file. Succeeds if it is absent.

    A dying process may still change the tree: what appears during the removal is removed too, up to a bound.
    """
    for attempt in range(_REMOVE_ATTEMPTS):
        try:
            mode = os.lstat(path).st_mode
            if not stat.S_ISDIR(mode):
                path.unlink()
                return
            _remove_once(path)
            path.rmdir()
        except FileNotFoundError:
            if not os.path.lexists(path):
                return
            if attempt == _REMOVE_ATTEMPTS - 1:
                raise
        except OSError as error:
            if error.errno not in _CHANGED or attempt == _REMOVE_ATTEMPTS - 1:
                raise
            time.sleep(0.025)
        else:
            return


def _remove_once(root: Path) -> None:
    while (deep := _remove_below(open_dir(root))) is not None:
        # Then from the top again, so that only one walk takes memory. Slower, but nothing else is left to do.
        while deep is not None:
            deep = _remove_below(deep)


def _remove_below(root: int) -> int | None:
    """Remove everything below an open directory, and close it. Returns one whose content has to be removed before."""
    try:
        with DirCursor(Path(), open_dir=lambda name, fd: os.dup(root) if fd is None else open_dir(name, fd)) as at:
            removal = _Removal(at)
            removal.remove_below()
            # What was too deep is here now, and may contain more that is.
            number = 0
            while number < removal.moved:
                with contextlib.suppress(FileNotFoundError):
                    at.enter(removal.name_of(number))
                    removal.remove_below()
                    at.leave()
                    os.rmdir(removal.name_of(number), dir_fd=at.fd)
                number += 1
    except _CannotMove as refused:
        return refused.fd
    finally:
        os.close(root)
    return None


class _CannotMove(Exception):
    """A directory that is too deep cannot be moved. `fd` is its parent's."""

    def __init__(self, fd: int) -> None:
        super().__init__("a directory that is too deep cannot be moved")
        self.fd = fd


class _Removal:
    """Removes everything below the cursor's directory. Moves what is too deep to the top, so that no depth needs memory.

    Raises _CannotMove where that is refused.
    """

    def __init__(self, at: DirCursor) -> None:
        self._at = at
        self._prefix = f".codehub-{secrets.token_hex(8)}-"
        self.moved = 0

    def name_of(self, number: int) -> str:
        return f"{self._prefix}{number}"

    def remove_below(self) -> None:
        at = self._at
        _make_writable(at.fd)
        for step in walk(at, may_vanish=_GONE, deepest=_DEEPEST):
            with contextlib.suppress(FileNotFoundError):
                match step.kind:
                    case Kind.FILE:
                        os.unlink(step.name, dir_fd=at.fd)
                    case Kind.ENTERED:
                        _make_writable(at.fd)
                    case Kind.LEFT:
                        os.rmdir(step.name, dir_fd=at.fd)
                    case Kind.DEEPER:
                        self._move(step.name)
                    case Kind.LEAVING:
                        pass
                    case _:
                        assert_never(step.kind)

    def _move(self, name: str) -> None:
        fd = open_dir(name, self._at.fd)
        try:
            _make_writable(fd)  # its `..` changes
        finally:
            os.close(fd)
        try:
            os.rename(name, self.name_of(self.moved), src_dir_fd=self._at.fd, dst_dir_fd=self._at.root)
        except OSError as error:
            if error.errno not in _REFUSED:
                raise
            raise _CannotMove(look_into(".", self._at.fd)) from error  # with a listing of its own
        self.moved += 1


def _make_writable(fd: int) -> None:
    mode = os.fstat(fd).st_mode
    if mode & 0o300 != 0o300 and os.geteuid() != 0:
        os.fchmod(fd, stat.S_IMODE(mode) | 0o700)
