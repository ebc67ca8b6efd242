"""A workspace's user id, and changing a tree's owner to it. Works on descriptors, so that no link is followed."""

from __future__ import annotations

import hashlib
import os
import stat
from pathlib import Path

from codehub.adapters.filesystem.dir_cursor import DirCursor
from codehub.adapters.filesystem.walk import Kind, walk

_FIRST_UID = 1_000_000_000  # above the ranges that distributions, containers and directory services use
_UIDS = 1_000_000_000


def uid_for(workspace_id: str) -> int | None:
    """Return the workspace's uid if CodeHub is root. Otherwise None, and the instance runs as CodeHub's user."""
    if os.geteuid() != 0:
        return None
    digest = hashlib.sha256(workspace_id.encode()).digest()
    return _FIRST_UID + int.from_bytes(digest[:8], "big") % _UIDS


def container_uid_for(workspace_id: str) -> int | None:
    """Like `uid_for`, for a container.

    The uid differs, because ending a process workspace kills every process of its uid.
    """
    return uid_for(f"container:{workspace_id}")


def own(home: Path, uid: int | None) -> None:
    """Give a home to its workspace's user. Does nothing if it already belongs to it."""
    if uid is None or os.stat(home).st_uid == uid:
        return
    with DirCursor(home) as at:
        for step in walk(at, exact=True):
            if step.kind is Kind.FILE:
                _own_file(step.name, at.fd, uid)
            elif step.kind is Kind.LEAVING:
                # The directory comes last: after a crash, the top directory still belongs to another user.
                os.fchown(at.fd, uid, uid)


def _own_file(name: str, fd: int, uid: int) -> None:
    found = os.stat(name, dir_fd=fd, follow_symlinks=False).st_mode
    os.chown(name, uid, uid, dir_fd=fd, follow_symlinks=False)
    mode = stat.S_IMODE(found)
    if mode & 0o6000 and stat.S_ISREG(found):
        _restore_mode(name, fd, uid, mode)


def _restore_mode(name: str, fd: int, uid: int, mode: int) -> None:
    """Set the bits again that a change of owner clears; by a descriptor, because the name may be a link by now."""
    file = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=fd)
    try:
        found = os.fstat(file)
        if stat.S_ISREG(found.st_mode) and found.st_uid == uid:
            os.chmod(f"/proc/self/fd/{file}", mode)
    finally:
        os.close(file)
