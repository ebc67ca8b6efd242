"""Watches the folders of a workspace with inotify and reports the paths that were touched.

The kernel queues an event before the call that caused it returns, so a query that drains the queue first knows of every
save made before it. Knows nothing of the index: it reports names.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import struct
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from sari.index.ignore import IGNORE_FILES
from sari.index.regular import read_regular

_MODIFY, _ATTRIB, _CLOSE_WRITE = 0x2, 0x4, 0x8
_MOVED_FROM, _MOVED_TO, _CREATE, _DELETE = 0x40, 0x80, 0x100, 0x200
_DELETE_SELF, _MOVE_SELF = 0x400, 0x800
_OVERFLOW, _GONE, _IS_FOLDER = 0x4000, 0x8000, 0x4000_0000
_ONLY_FOLDERS, _EXCLUDE_UNLINKED = 0x100_0000, 0x400_0000
_MASK = (
    _MODIFY | _ATTRIB | _CLOSE_WRITE | _MOVED_FROM | _MOVED_TO | _CREATE | _DELETE | _DELETE_SELF | _MOVE_SELF
    | _ONLY_FOLDERS | _EXCLUDE_UNLINKED
)  # fmt: skip
_HEAD = struct.Struct("iIII")
# A file of git that names a folder contains one path.
_LONGEST_POINTER = 8_192


class NoWatching(Exception):
    """Raised when these folders cannot be watched: no inotify, or no watches left. Compare with the disk instead."""


@dataclass(slots=True)
class Touched:
    """The changes since the last call. Paths are relative to the root."""

    # Files that were written, created, renamed or removed.
    files: set[bytes] = field(default_factory=set)
    # Folders whose list of files changed.
    folders: set[bytes] = field(default_factory=set)
    # Folders that were created, removed or renamed: everything below them must be checked.
    trees: set[bytes] = field(default_factory=set)
    # An ignore file changed.
    rules: bool = False
    # The kernel dropped events: compare everything.
    lost: bool = False

    def __bool__(self) -> bool:
        return bool(self.files or self.folders or self.trees or self.rules or self.lost)


class Watcher:
    """An inotify queue for a tree of folders. Not thread-safe: its owner holds a lock."""

    def __init__(self, root: Path, skip: Callable[[str], bool]) -> None:
        if sys.platform != "linux":
            raise NoWatching("no inotify on this system")
        self._root = os.fsencode(root)
        self.skip = skip
        self._libc = ctypes.CDLL(None, use_errno=True)
        self.fd: int = self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self.fd < 0:
            raise NoWatching(os.strerror(ctypes.get_errno()))
        self._by_watch: dict[int, bytes] = {}
        self._by_folder: dict[bytes, int] = {}

    @property
    def folders(self) -> int:
        return len(self._by_watch)

    def watch_tree(self, folder: bytes = b"", stop: Callable[[], bool] = lambda: False) -> list[bytes]:
        """Watch a folder and everything below it that is not ignored. Each is watched before it is listed, so no change
        is missed.

        Returns the folders that were not watched before: the known state of their files may be outdated.
        """
        fresh: list[bytes] = []
        waiting = [folder]
        while waiting and not stop():
            current = waiting.pop()
            before = self._by_folder.get(current)
            if not self._add(current):
                continue
            if self._by_folder[current] != before:
                fresh.append(current)
            try:
                entries = list(os.scandir(os.path.join(self._root, current)))
            except OSError:
                continue
            for entry in entries:
                if entry.name == b".git":
                    # A change of a repository's exclude file changes what is searched.
                    info = os.path.join(current, b".git", b"info")
                    self._add(info, os.path.join(_shared_git_folder(entry.path), b"info"))
                    continue
                below = os.path.join(current, entry.name)
                with contextlib.suppress(OSError):
                    if entry.is_dir(follow_symlinks=False) and not self.skip(os.fsdecode(below)):
                        waiting.append(below)
        return fresh

    def _add(self, folder: bytes, place: bytes = b"") -> bool:
        """Watch a folder. `place` is its real path if that is not below the root."""
        where = place or os.path.join(self._root, folder)
        watch: int = self._libc.inotify_add_watch(self.fd, where, ctypes.c_uint32(_MASK))
        if watch < 0:
            code = ctypes.get_errno()
            if code in (errno.ENOSPC, errno.ENOMEM):
                raise NoWatching("no inotify watches left; raise fs.inotify.max_user_watches")
            return False
        self._by_watch[watch] = folder
        self._by_folder[folder] = watch
        return True

    def drain(self) -> Touched:
        """Return everything queued until now."""
        touched = Touched()
        while True:
            try:
                data = os.read(self.fd, 1 << 18)
            except (BlockingIOError, InterruptedError):
                return touched
            at = 0
            while at < len(data):
                watch, mask, _, size = _HEAD.unpack_from(data, at)
                name = data[at + 16 : at + 16 + size].rstrip(b"\0")
                at += 16 + size
                self._note(touched, watch, mask, name)

    def _note(self, touched: Touched, watch: int, mask: int, name: bytes) -> None:
        if mask & _OVERFLOW:
            touched.lost = True
            return
        folder = self._by_watch.get(watch)
        if folder is None:
            return
        if mask & _GONE:
            del self._by_watch[watch]
            if self._by_folder.get(folder) == watch:
                del self._by_folder[folder]
            touched.trees.add(folder)
            return
        if mask & (_DELETE_SELF | _MOVE_SELF):
            touched.trees.add(folder)
            return
        path = os.path.join(folder, name) if folder else name
        if name == b".git" or os.fsdecode(name) in IGNORE_FILES or folder.endswith(b".git/info"):
            touched.rules = True
            if name != b".git" and not folder.endswith(b".git/info"):
                touched.files.add(path)
                touched.folders.add(folder)
            return
        if mask & _IS_FOLDER:
            if mask & (_CREATE | _MOVED_TO | _MOVED_FROM | _DELETE):
                touched.trees.add(path)
            if mask & (_MOVED_FROM | _DELETE):
                self._forget(path)
            if mask & (_CREATE | _MOVED_TO) and not self.skip(os.fsdecode(path)):
                self.watch_tree(path)
            return
        touched.files.add(path)
        if mask & (_CREATE | _MOVED_TO | _MOVED_FROM | _DELETE):
            touched.folders.add(folder)

    def _forget(self, folder: bytes) -> None:
        """Drop the watches of a folder that was moved away: they would stay under its old name."""
        below = folder + b"/"
        for path in [p for p in self._by_folder if p == folder or p.startswith(below)]:
            watch = self._by_folder.pop(path)
            self._by_watch.pop(watch, None)
            self._libc.inotify_rm_watch(self.fd, watch)

    def close(self) -> None:
        os.close(self.fd)


def _shared_git_folder(git: bytes) -> bytes:
    """Return the folder that contains a checkout's `info`. In a worktree or submodule, `.git` is a file that names it."""
    named = read_regular(git, _LONGEST_POINTER)
    if named is None:
        return git
    place = os.path.join(os.path.dirname(git), named.removeprefix(b"gitdir:").strip())
    shared = read_regular(os.path.join(place, b"commondir"), _LONGEST_POINTER)
    return place if shared is None else os.path.join(place, shared.strip())
