"""How much a home uses on its disk, also while programs change it. Owns the walk and its bounds.

By descriptors, without following links. Everything in the home is somebody else's: directories that vanish, that are
swapped for a link, or that never end.
"""

from __future__ import annotations

import contextlib
import errno
import os
import threading
from dataclasses import dataclass, field
from pathlib import Path

from codehub.adapters.filesystem.dir_cursor import DirCursor, look_into
from codehub.adapters.filesystem.walk import Kind, walk

# Beyond these the size is unknown: they bound the time and the memory that one home can take.
_MOST_ENTRIES = 2_000_000
_MOST_KEPT = 500_000
# A pause after so many entries leaves the interpreter to the event loop.
_GONE = frozenset({errno.ENOENT, errno.ENOTDIR})  # gone since, or a link by now
_ENTRIES_A_SLICE, _PAUSE_S = 500, 0.002


class _Unbounded(Exception):
    pass


@dataclass(slots=True)
class _Usage:
    cancelled: threading.Event
    most: int
    entries: int = 0
    total: int = 0
    # Files with several names, which are counted once.
    seen: set[tuple[int, int]] = field(default_factory=set)

    def add_file(self, name: str, fd: int) -> None:
        self._step()
        with contextlib.suppress(OSError):  # gone since
            self._add(os.stat(name, dir_fd=fd, follow_symlinks=False))

    def add_directory(self, fd: int) -> None:
        self._step()
        self.total += _bytes(os.fstat(fd))

    def _add(self, found: os.stat_result) -> None:
        if found.st_nlink > 1:
            which = (found.st_dev, found.st_ino)
            if which in self.seen:
                return
            self.seen.add(which)
        self.total += _bytes(found)

    def _step(self) -> None:
        self.entries += 1
        if self.entries > self.most or len(self.seen) > _MOST_KEPT:
            raise _Unbounded
        if self.entries % _ENTRIES_A_SLICE == 0 and self.cancelled.wait(_PAUSE_S):
            raise _Unbounded


def _bytes(found: os.stat_result) -> int:
    return found.st_blocks * 512


def disk_usage(root: Path, cancelled: threading.Event, *, most: int = _MOST_ENTRIES) -> int | None:
    """Bytes on disk below `root`; None when a part cannot be read, it has more than `most` entries, or it was cancelled."""
    usage = _Usage(cancelled, most)
    try:
        with DirCursor(root, open_dir=look_into) as at:
            usage.total += _bytes(os.fstat(at.fd))
            for step in walk(at, may_vanish=_GONE):
                if step.kind is Kind.FILE:
                    usage.add_file(step.name, at.fd)
                elif step.kind is Kind.ENTERED:
                    usage.add_directory(at.fd)
    except (_Unbounded, OSError):
        return None
    return usage.total
