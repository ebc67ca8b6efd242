"""Walks a tree of any width with little memory: a directory is read in pieces.

Its owner decides how many entries a directory has and how many directories a path goes through. Only the last few levels
of a path stay open. Before one is closed, the rest of its names is read: on some file systems (FUSE, overlays), a position
in a listing means something else once the directory is opened again. Only if there are too many names is a listing
continued by its position, and then an `exact` walk checks the entries again at the end.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, NamedTuple

from codehub.adapters.filesystem.dir_cursor import KEPT_OPEN, DirCursor

_LIBC = ctypes.CDLL(None, use_errno=True)
_PIECE: Final = 32 << 10  # bytes of a listing
_MOST_KEPT: Final = 16 << 20  # bytes of names of closed directories
_HEADER = struct.Struct("=QqHB")  # inode, position of the next entry, length, type
_UNKNOWN, _DIRECTORY, _REGULAR = 0, 4, 8
_TYPE: Final = 1  # added to a kept type, so that it is no zero byte


class Kind(Enum):
    FILE = "file"  # anything but a directory
    ENTERED = "entered"  # it is the current one now
    LEAVING = "leaving"  # all of it was walked; it is still the current one
    LEFT = "left"  # its parent is the current one now
    DEEPER = "deeper"  # a directory that is not entered


class Step(NamedTuple):  # one for each entry: much cheaper than a frozen dataclass
    kind: Kind
    name: str
    regular: bool = False  # a file that was listed as a regular one: not all file systems do


@dataclass(slots=True)
class _Level:
    # (name, type, position of the next entry), last one first.
    listed: list[tuple[str, int, int]] = field(default_factory=list)
    position: int = 0
    by_position: bool = False  # it was closed before all its names were read
    # Names that were read before it was closed, in pieces, last one first: each as its type, the name and a zero byte.
    kept: list[bytes] | None = None
    is_kept: bool = False  # what is not in `kept` was listed already
    seen: int = 0  # a sum that shows an entry that was skipped or repeated


def walk(
    at: DirCursor,
    *,
    may_vanish: frozenset[int] = frozenset(),
    deepest: int | None = None,
    leave_out: frozenset[str] = frozenset(),
    exact: bool = False,
    on_error: Callable[[str, OSError], None] | None = None,
) -> Iterator[Step]:
    """Walk everything below the cursor's directory. The cursor moves along; with the last step, it is there again.

    A directory that cannot be entered with one of the errors `may_vanish` is left out. Those below `deepest` levels are
    only named. `leave_out` are names of directories directly below the cursor's. With `exact`, raise OSError rather than
    skip or repeat an entry of a tree at rest. With `on_error`, a directory that cannot be entered or read any further is
    left out too, after this was called with its name.
    """
    levels, reader = [_Level()], _Reader()
    while levels:
        level = levels[-1]
        if not level.listed:
            try:
                reader.read(level, at.fd)
            except OSError as error:
                if on_error is None:
                    raise
                on_error("", error)
            if not level.listed:
                if exact and level.by_position:
                    reader.check(level, at)
                levels.pop()
                name = at.name if levels else ""
                yield Step(Kind.LEAVING, name)
                if levels:
                    at.leave()
                    yield Step(Kind.LEFT, name)
                continue
        name, kind, level.position = level.listed.pop()
        level.seen += hash(name)
        if name in (".", ".."):
            continue
        if kind != _DIRECTORY and not (kind == _UNKNOWN and _is_directory(name, at.fd)):
            yield Step(Kind.FILE, name, kind == _REGULAR)
            continue
        if len(levels) == 1 and name in leave_out:
            continue
        if deepest is not None and len(levels) > deepest:
            yield Step(Kind.DEEPER, name)
            continue
        if (closing := at.next_closed) is not None and len(levels) >= KEPT_OPEN:
            try:
                reader.keep(levels[len(levels) - KEPT_OPEN], closing)
            except OSError as error:
                if on_error is None:
                    raise
                on_error("", error)
        try:
            at.enter(name)
        except OSError as error:
            if error.errno in may_vanish:
                continue
            if on_error is None:
                raise
            on_error(name, error)
            continue
        levels.append(_Level())
        yield Step(Kind.ENTERED, name)


class _Reader:
    """Reads the listings of one walk. Keeps the names of closed directories, up to a bound for all of them."""

    def __init__(self) -> None:
        self._buffer = ctypes.create_string_buffer(_PIECE)
        self._left = _MOST_KEPT

    def read(self, level: _Level, fd: int) -> None:
        """List the next piece; nothing at the end."""
        if level.kept:
            piece = level.kept.pop()
            self._left += len(piece)
            records = piece.split(b"\0")[:-1]
            level.listed = [(os.fsdecode(record[1:]), record[0] - _TYPE, 0) for record in reversed(records)]
        elif not level.is_kept:
            level.listed = _read(fd, level.position if level.by_position else None, self._buffer)

    def keep(self, level: _Level, fd: int) -> None:
        """Read the rest of a directory that is about to be closed."""
        if level.by_position:
            level.listed = []
            return
        added = [_packed(level.listed)] if level.listed else []
        level.by_position, level.listed = not level.is_kept, []  # unless all of it can be kept
        size = sum(map(len, added))
        while not level.is_kept and size <= self._left:
            if listed := _read(fd, None, self._buffer):
                added.append(_packed(listed))
                size += len(added[-1])
            else:
                level.is_kept = True
        if level.is_kept:
            level.by_position = False
            level.kept = [*(level.kept or ()), *reversed(added)]
            self._left -= size

    def check(self, level: _Level, at: DirCursor) -> None:
        """Raise OSError unless each entry of the current directory was seen exactly once."""
        os.lseek(at.fd, 0, os.SEEK_SET)
        total = 0
        while listed := _read(at.fd, None, self._buffer):
            total += sum(hash(name) for name, _, _ in listed)
        if total != level.seen:
            raise OSError(errno.ESTALE, "the entries of a directory changed while they were listed")


def _packed(listed: list[tuple[str, int, int]]) -> bytes:
    return b"".join(b"%c%b\0" % (kind + _TYPE, os.fsencode(name)) for name, kind, _ in reversed(listed))


def _read(fd: int, position: int | None, buffer: ctypes.Array[ctypes.c_char]) -> list[tuple[str, int, int]]:
    """Return the next piece of a listing, in reverse order; nothing at its end. None is where the descriptor is."""
    # Only if it is elsewhere: some file systems find a position by counting, and entries may have been removed.
    if position is not None and os.lseek(fd, 0, os.SEEK_CUR) != position:
        os.lseek(fd, position, os.SEEK_SET)
    size = _LIBC.getdents64(fd, buffer, ctypes.c_size_t(_PIECE))
    if size < 0:
        number = ctypes.get_errno()
        if number == errno.ENOENT:  # the directory itself was removed
            return []
        raise OSError(number, os.strerror(number))
    raw = ctypes.string_at(buffer, size)
    listed, offset = [], 0
    while offset < size:
        _, following, length, kind = _HEADER.unpack_from(raw, offset)
        start = offset + _HEADER.size
        listed.append((os.fsdecode(raw[start : raw.index(0, start)]), kind, following))
        offset += length
    listed.reverse()
    return listed


def _is_directory(name: str, fd: int) -> bool:
    """For file systems that do not list the type."""
    try:
        return stat.S_ISDIR(os.stat(name, dir_fd=fd, follow_symlinks=False).st_mode)
    except FileNotFoundError:
        return False
