"""A workspace's own user, and giving a whole tree to it: by descriptors, so that no link is followed."""

from __future__ import annotations

import hashlib
import os
import stat
from pathlib import Path

from codehub.adapters.filesystem.dir_cursor import DirCursor

_FIRST_UID = 1_000_000_000  # above what distributions, containers and directories hand out
_UIDS = 1_000_000_000


def uid_for(workspace_id: str) -> int | None:
    """The workspace's own uid when CodeHub is root; else None, and the instance runs as CodeHub's user."""
    if os.geteuid() != 0:
        return None
    digest = hashlib.sha256(workspace_id.encode()).digest()
    return _FIRST_UID + int.from_bytes(digest[:8], "big") % _UIDS


def container_uid_for(workspace_id: str) -> int | None:
    """The same for a container. Another one, as to end a process workspace is to end every process of its uid."""
    return uid_for(f"container:{workspace_id}")


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
