"""Checks the free space before a copy starts, so that a full disk is reported before the copy and not in the middle."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from codehub.adapters.filesystem.dir_cursor import DirCursor
from codehub.adapters.filesystem.walk import Kind, walk
from codehub.adapters.objectstore.layout import Meta
from codehub.adapters.objectstore.store import Store
from codehub.adapters.tarball.pack import MAX_DEPTH
from codehub.domain.errors import OutOfSpace

# Homes compress to between a third and all of their size. With less space than this, starting is pointless.
_BEST_COMPRESSION = 8
_MARGIN = 16 << 20
_ENTRY = 1024  # bytes of headers
_LEFT_OUT = frozenset({errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOENT, errno.ENOTDIR, errno.ELOOP})


def tree_bytes(root: Path) -> int:
    """Return the approximate size of the tree's tar stream."""
    total = _ENTRY
    with DirCursor(root, holds=True) as at:
        # What is deeper cannot be archived. What cannot be read is reported by the archive, with its path.
        for step in walk(at, deepest=MAX_DEPTH, may_vanish=_LEFT_OUT):
            if step.kind is Kind.ENTERED:
                total += _ENTRY
            elif step.kind is Kind.FILE:
                try:
                    found = os.stat(step.name, dir_fd=at.fd, follow_symlinks=False)
                except OSError as error:
                    if error.errno in _LEFT_OUT:
                        continue
                    raise
                if stat.S_ISREG(found.st_mode):
                    total += _ENTRY + 512 + min(found.st_size, found.st_blocks * 512)
    return total


def check_room_for_archive(store: Store, total: int) -> None:
    free = store.free_bytes()
    if free is not None and free < total // _BEST_COMPRESSION + _MARGIN:
        raise OutOfSpace(
            f"the disk of the archive store {store.place} has {free >> 20} MiB left for a home of {_mib(total)} MiB: "
            "free some space on it"
        )


def check_room_for_restore(root: Path, meta: Meta) -> None:
    found = os.statvfs(root)
    free = found.f_bavail * found.f_frsize
    needed = meta.tar_bytes + _MARGIN
    if free < needed:
        raise OutOfSpace(
            f"the homes' disk at {root} has {free >> 20} MiB left, and this home needs {_mib(needed)} MiB: "
            "free some space on it"
        )


def _mib(size: int) -> int:
    """Rounded up, so that what is needed is never shown as less than what is left."""
    return -(-size >> 20)
