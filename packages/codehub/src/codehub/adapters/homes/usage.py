"""How much a home uses on its disk, also while programs change it. Owns the walk and its bounds.

By descriptors, without following links. Everything in the home is somebody else's: directories that vanish, that are
swapped for a link, or that never end.
"""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass, field
from pathlib import Path

from codehub.adapters.filesystem.dir_cursor import DirCursor, look_into

# Beyond these the size is unknown: they bound the time and the memory that one home can take.
_MOST_ENTRIES = 2_000_000
_MOST_KEPT = 500_000
# A pause after so many entries leaves the interpreter to the event loop.
_ENTRIES_A_SLICE, _PAUSE_S = 500, 0.002


class _Unbounded(Exception):
    pass


@dataclass(slots=True)
class _Walk:
    cancelled: threading.Event
    most: int
    entries: int = 0
    total: int = 0
    # Directories to enter; files with several names, which are counted once.
    waiting: int = 0
    seen: set[tuple[int, int]] = field(default_factory=set)

    def level(self, fd: int) -> list[str]:
        """Count the entries of one directory; its directories."""
        self.total += _bytes(os.fstat(fd))
        directories: list[str] = []
        with os.scandir(fd) as entries:
            for entry in entries:
                self._step()
                try:
                    if entry.is_dir(follow_symlinks=False):
                        directories.append(entry.name)
                        self.waiting += 1
                    else:
                        self._add(entry.stat(follow_symlinks=False))
                except OSError:  # gone since
                    continue
        return directories

    def _add(self, found: os.stat_result) -> None:
        if found.st_nlink > 1:
            which = (found.st_dev, found.st_ino)
            if which in self.seen:
                return
            self.seen.add(which)
        self.total += _bytes(found)

    def _step(self) -> None:
        self.entries += 1
        if self.entries > self.most or self.waiting + len(self.seen) > _MOST_KEPT:
            raise _Unbounded
        if self.entries % _ENTRIES_A_SLICE == 0 and self.cancelled.wait(_PAUSE_S):
            raise _Unbounded


def _bytes(found: os.stat_result) -> int:
    return found.st_blocks * 512


def disk_usage(root: Path, cancelled: threading.Event, *, most: int = _MOST_ENTRIES) -> int | None:
    """Bytes on disk below `root`; None when a part cannot be read, it has more than `most` entries, or it was cancelled."""
    walk = _Walk(cancelled, most)
    try:
        with DirCursor(root, open_dir=look_into) as at:
            pending = [walk.level(at.fd)]
            while pending:
                if not pending[-1]:
                    pending.pop()
                    if pending:
                        at.leave()
                    continue
                walk.waiting -= 1
                try:
                    at.enter(pending[-1].pop())
                except (FileNotFoundError, NotADirectoryError):
                    continue  # gone since, or a link by now
                pending.append(walk.level(at.fd))
    except (_Unbounded, OSError):
        return None
    return walk.total
