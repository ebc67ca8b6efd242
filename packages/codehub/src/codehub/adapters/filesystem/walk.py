"""Walks a tree of any width with little memory: a directory is read in pieces, by its position in the kernel's listing.

Its owner decides how many entries a directory has and how many directories a path goes through. Names are kept of the last
few levels only; returning to another one continues its listing where it was left.
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

from codehub.adapters.filesystem.dir_cursor import DirCursor

_LIBC = ctypes.CDLL(None, use_errno=True)
_PIECE: Final = 32 << 10  # bytes of a listing
_LEVELS_WITH_NAMES: Final = 64
_HEADER = struct.Struct("=QqHB")  # inode, position of the next entry, length, type
_UNKNOWN, _DIRECTORY, _REGULAR = 0, 4, 8


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


def walk(
    at: DirCursor,
    *,
    may_vanish: frozenset[int] = frozenset(),
    deepest: int | None = None,
    leave_out: frozenset[str] = frozenset(),
    on_error: Callable[[str, OSError], None] | None = None,
) -> Iterator[Step]:
    """Walk everything below the cursor's directory. The cursor moves along; with the last step, it is there again.

    A directory that cannot be entered with one of the errors `may_vanish` is left out. Those below `deepest` levels are
    only named. `leave_out` are names of directories directly below the cursor's. With `on_error`, a directory that cannot
    be entered or read any further is left out too, after this was called with its name.
    """
    levels, buffer = [_Level()], ctypes.create_string_buffer(_PIECE)
    while levels:
        level = levels[-1]
        if not level.listed:
            try:
                level.listed = _read(at.fd, level.position, buffer)
            except OSError as error:
                if on_error is None:
                    raise
                on_error("", error)
            if not level.listed:
                levels.pop()
                name = at.name if levels else ""
                yield Step(Kind.LEAVING, name)
                if levels:
                    at.leave()
                    yield Step(Kind.LEFT, name)
                continue
        name, kind, level.position = level.listed.pop()
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
        if len(levels) > _LEVELS_WITH_NAMES:
            levels[-1 - _LEVELS_WITH_NAMES].listed.clear()
        yield Step(Kind.ENTERED, name)


def _read(fd: int, position: int, buffer: ctypes.Array[ctypes.c_char]) -> list[tuple[str, int, int]]:
    """Return the next piece of a listing, in reverse order; nothing at its end."""
    # Only if it is somewhere else: some file systems find a position by counting, and entries may have been removed.
    if os.lseek(fd, 0, os.SEEK_CUR) != position:
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
