"""Giving a whole tree to one user, by descriptors, so that no link is followed."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from codehub.adapters.filesystem.dir_cursor import DirCursor


def own(home: Path, uid: int | None) -> None:
    """Make a home its workspace's own. Nothing is done when it is already."""
    if uid is None or os.stat(home).st_uid == uid:
        return
    with DirCursor(home) as at:
        pending = [_own_level(at.fd, uid)]
        while pending:
            if pending[-1]:
                at.enter(pending[-1].pop())
                pending.append(_own_level(at.fd, uid))
            else:
                pending.pop()
                # The directory last: a crash on the way is noticed by the top still being another's.
                os.fchown(at.fd, uid, uid)
                if pending:
                    at.leave()


def _own_level(fd: int, uid: int) -> list[str]:
    directories: list[str] = []
    with os.scandir(fd) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                directories.append(entry.name)
            else:
                mode = stat.S_IMODE(entry.stat(follow_symlinks=False).st_mode)
                os.chown(entry.name, uid, uid, dir_fd=fd, follow_symlinks=False)
                if mode & 0o6000 and not entry.is_symlink():
                    os.chmod(entry.name, mode, dir_fd=fd)
    return directories
