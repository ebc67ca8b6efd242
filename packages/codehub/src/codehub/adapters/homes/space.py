"""Checks the free space before a copy starts, so that a full disk is reported before the copy and not in the middle."""

from __future__ import annotations

import os
from pathlib import Path

from codehub.adapters.filesystem.dir_cursor import DirCursor
from codehub.adapters.objectstore.layout import Meta
from codehub.adapters.objectstore.store import Store
from codehub.domain.errors import OutOfSpace

# Homes compress to between a third and all of their size. With less space than this, starting is pointless.
_BEST_COMPRESSION = 8
_MARGIN = 16 << 20


def tree_bytes(root: Path) -> int:
    """Return the approximate size of the tree's tar stream."""
    total = 0
    with DirCursor(root) as at:
        pending = [_level(at.fd)]
        while pending:
            size, directories = pending[-1]
            if directories:
                at.enter(directories.pop())
                pending.append(_level(at.fd))
            else:
                total += size
                pending.pop()
                if pending:
                    at.leave()
    return total


def _level(fd: int) -> tuple[int, list[str]]:
    size = 1024
    directories: list[str] = []
    with os.scandir(fd) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                directories.append(entry.name)
            elif entry.is_file(follow_symlinks=False):
                found = entry.stat(follow_symlinks=False)
                size += 1536 + min(found.st_size, found.st_blocks * 512)
    return size, directories


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
