"""Removes a tree of any depth without following links, even while other processes still write into it."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import time
from pathlib import Path

from codehub.adapters.filesystem.dir_cursor import DirCursor

_REMOVE_ATTEMPTS = 200  # 25 ms each: by then, a killed process's children are gone
# The errors of an entry that appeared or was replaced meanwhile.
_CHANGED = (errno.ENOTEMPTY, errno.EEXIST, errno.EBUSY, errno.EISDIR, errno.ENOTDIR, errno.ELOOP)


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
        except OSError as error:
            if error.errno not in _CHANGED or attempt == _REMOVE_ATTEMPTS - 1:
                raise
            time.sleep(0.025)
        else:
            return


def _remove_once(root: Path) -> None:
    with DirCursor(root) as at:
        pending: list[list[str]] = [_unlink_files(at.fd)]
        names: list[str] = []
        while pending:
            if pending[-1]:
                name = pending[-1].pop()
                try:
                    at.enter(name)
                except FileNotFoundError:
                    continue
                names.append(name)
                pending.append(_unlink_files(at.fd))
                continue
            pending.pop()
            if pending:
                fd = at.leave()
                with contextlib.suppress(FileNotFoundError):
                    os.rmdir(names.pop(), dir_fd=fd)


def _unlink_files(fd: int) -> list[str]:
    """Unlink everything except directories, and return the directories."""
    directories: list[str] = []
    writable = False
    with os.scandir(fd) as entries:
        listed = list(entries)
    for entry in listed:
        if not writable:
            mode = os.fstat(fd).st_mode
            if mode & 0o300 != 0o300 and os.geteuid() != 0:
                os.fchmod(fd, stat.S_IMODE(mode) | 0o700)
            writable = True
        if entry.is_dir(follow_symlinks=False):
            directories.append(entry.name)
        else:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(entry.name, dir_fd=fd)
    return directories
