"""What is on the disk below a root, and how an index's table of files is brought up to date with it.

A comparison lists the tree and checks every file; events name the few files and folders to check. Knows neither when to
compare nor how the tree is watched.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Sequence
from dataclasses import astuple
from pathlib import Path

from sari.index import content, ripgrep
from sari.index.segment import NEVER
from sari.index.stamp_workers import Recorded, StampCheck
from sari.index.table import Candidates, Numbers, Scan, Table, numbers_of
from sari.index.watch import Touched

# Listing more folders than this one by one is slower than listing the tree.
_MOST_RELISTED = 100
_UNSURE = astuple(NEVER)


class Disk:
    """The files below one root, as they are now. Listing them raises `ripgrep.Cancelled` once `stopped` is true."""

    def __init__(self, root: Path, stopped: Callable[[], bool]) -> None:
        self._root = root
        self._stopped = stopped
        self._base = os.fsencode(root) + b"/"

    def absolute(self, path: bytes) -> bytes:
        return self._base + path

    def numbers(self, path: bytes) -> Numbers | None:
        """Return the state of a regular file; None if there is none."""
        try:
            found = os.lstat(self._base + path)
        except OSError:
            return None
        return numbers_of(found) if stat.S_ISREG(found.st_mode) else None

    def list_files(self, folders: Iterable[bytes] | None = None) -> list[bytes]:
        """Return the files that are not ignored: all of them, or those directly in some folders."""
        where: list[str | bytes] = (
            ["./"] if folders is None else ["--max-depth", "1", *(b"./" + folder for folder in folders)]
        )
        try:
            return ripgrep.files(self._root, where, self._stopped)
        except ripgrep.RipgrepDied:
            # Without a complete list, files would count as removed.
            raise
        except ripgrep.RipgrepFailed:
            return []

    def scan(self, recorded: Sequence[Recorded]) -> Scan:
        """List the tree, and meanwhile check the files whose state is recorded."""
        check = StampCheck(self._base[:-1], recorded)
        try:
            listed = set(self.list_files())
        except BaseException:
            check.cancel()
            raise
        return Scan(listed, check.result())

    def root_identity(self) -> tuple[int, int] | None:
        """Return device and inode of the root, which differ after it was replaced; None if it does not exist."""
        try:
            found = os.stat(self._root)
        except OSError:
            return None
        return found.st_dev, found.st_ino


def look_into(found: Candidates, disk: Disk) -> list[tuple[bytes, int, int, Numbers]]:
    """Determine which unindexed files are text or binary. Returns what may be kept until the files change: the path, the
    change that made it pending, the kind and the stamp.
    """
    judged = []
    for path, change in found.unread:
        # The state before reading: a file that changes meanwhile is read again.
        stamp = disk.numbers(path)
        kind = content.kind(disk.absolute(path))
        found.add(path, kind)
        if stamp is not None and not content.is_fresh(stamp[0], stamp[1]):
            judged.append((path, change, kind, stamp))
    found.unread = []
    return judged


def compare(table: Table, disk: Disk) -> int:
    """Check every file. Returns how many differed from the known state."""
    found = disk.scan(table.recorded())
    changed = table.changed_in(found.changed)
    differed = 0
    for path in table.paths():
        if path not in found.listed:
            differed += 1
            table.remove(path)
    for path in [*changed, *table.pending, *found.listed.difference(table.paths())]:
        if path not in found.listed:
            continue
        numbers = disk.numbers(path)
        if numbers is None:
            differed += path in table
            table.remove(path)
        elif path not in table or not table.knows(path, numbers):
            # A file read too soon after it was written is read again to be safe. That does not count as a difference.
            differed += table.stamp(path) != _UNSURE
            table.mark(path)
    return differed


def apply_events(table: Table, disk: Disk, touched: Touched, newly_watched: Iterable[bytes]) -> None:
    """Check what the events name, and everything directly in the folders that were not watched before."""
    known = {path for folder in touched.trees for path in table.below(folder)}
    # A folder that is no longer ignored may have been listed and read before it was watched.
    known.update(path for folder in newly_watched for path in table.in_folder(folder))
    known.update(path for path in touched.files if path in table)
    for path in known:
        _check(table, disk, path)
    if touched.trees or touched.rules:
        _relist(table, disk, None)
    elif touched.folders:
        folders = table.folders()
        stale = touched.folders
        narrow = len(stale) <= _MOST_RELISTED and all(folder in folders or not folder for folder in stale)
        _relist(table, disk, stale if narrow else None)


def _check(table: Table, disk: Disk, path: bytes) -> None:
    numbers = disk.numbers(path)
    if numbers is None:
        table.remove(path)
    elif table.stamp(path) != numbers:
        table.mark(path)


def _relist(table: Table, disk: Disk, folders: set[bytes] | None) -> None:
    """List the files of some folders or of all, without checking the known ones again."""
    listed = set(disk.list_files(folders))
    known = set(table.paths()) if folders is None else {p for folder in folders for p in table.in_folder(folder)}
    for path in known - listed:
        table.remove(path)
    for path in listed - known:
        table.mark(path)
