"""Packs a tree into a tar stream, as chunks.

Every file is opened by its directory's descriptor, without following links. A file that shrinks, vanishes or cannot be read
fails the stream: a truncated archive must never look complete. Sockets and devices are left out.
"""

from __future__ import annotations

import os
import stat
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import assert_never

from codehub.adapters.filesystem.dir_cursor import DirCursor, open_unreadable
from codehub.adapters.filesystem.hard_links import FirstNames, TooManyLinks
from codehub.adapters.filesystem.holes import data_segments
from codehub.adapters.filesystem.walk import Kind, walk
from codehub.adapters.filesystem.xattrs import kept_xattrs
from codehub.adapters.tarball.format import (
    BLOCK,
    DIR,
    END,
    FIFO,
    FILE,
    LINK,
    MAX_PAX,
    MAX_SEGMENTS,
    SYMLINK,
    Entry,
    encode,
    padding,
)
from codehub.domain.errors import Terminal, Transient

CHUNK = 1 << 20
# Twice the longest path that a program can name at once (PATH_MAX). Real trees stay far below.
MAX_PATH = 8192
MAX_DEPTH = 1000
_MAX_XATTRS = MAX_PAX >> 1
_OPEN_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


@dataclass(slots=True)
class Packed:
    """Counts what was packed so far."""

    tar_bytes: int = 0
    entries: int = 0


@dataclass(slots=True)
class _Out:
    """Collects small pieces into chunks."""

    packed: Packed
    pieces: list[bytes] = field(default_factory=list)
    held: int = 0

    def add(self, piece: bytes) -> None:
        self.pieces.append(piece)
        self.held += len(piece)

    def take(self) -> bytes:
        chunk = b"".join(self.pieces)
        self.pieces.clear()
        self.packed.tar_bytes += len(chunk)
        self.held = 0
        return chunk


def pack_tree(
    root: Path,
    packed: Packed,
    cancelled: Callable[[], bool] = lambda: False,
    leave_out: frozenset[str] = frozenset(),
) -> Iterator[bytes]:
    """Yield the tree including `root`, in chunks of about `CHUNK` bytes.

    `leave_out` names directories directly below the root that do not belong to the user (a file system's `lost+found`).
    """
    out = _Out(packed)
    prefix: list[bytes] = [b"./"]
    try:
        yield from _steps(root, prefix, out, cancelled, leave_out)
    except OSError as error:
        name = os.fsencode(error.filename) if isinstance(error.filename, str) else b""
        path = prefix[-1] + name.rpartition(b"/")[2]
        if isinstance(error, PermissionError):
            raise Terminal(
                f"the home cannot be archived: {_shown(path)!r} cannot be read ({error.strerror}). Start the workspace and "
                "change its owner or its mode, or remove it"
            ) from error
        error.filename = _shown(path)
        raise


def _steps(
    root: Path, prefix: list[bytes], out: _Out, cancelled: Callable[[], bool], leave_out: frozenset[str]
) -> Iterator[bytes]:
    """Yield the chunks. `prefix` are the paths of the directories that lead to the current one."""
    links = FirstNames()
    with DirCursor(root, holds=True) as at:
        out.add(_directory(b".", at, out.packed))
        for step in walk(at, deepest=MAX_DEPTH, leave_out=leave_out, exact=True):
            path = prefix[-1] + os.fsencode(step.name)
            match step.kind:
                case Kind.FILE if step.regular:
                    yield from _regular(at.fd, step.name, bounded(path), links, out)
                case Kind.FILE:
                    yield from _file(at.fd, step.name, bounded(path), links, out)
                case Kind.ENTERED:
                    prefix.append(bounded(path) + b"/")
                    out.add(_directory(path, at, out.packed))
                case Kind.LEFT:
                    prefix.pop()
                case Kind.DEEPER:
                    bounded(path, MAX_DEPTH + 1)
                case Kind.LEAVING:
                    pass
                case _:
                    assert_never(step.kind)
            if out.held >= CHUNK:
                if cancelled():
                    return
                yield out.take()
    out.add(END)
    yield out.take()


def bounded(path: bytes, depth: int = 0) -> bytes:
    """Return the path if it is short enough.

    Each entry repeats its full path: otherwise 12 MB of nested directories become a 1 GB archive.
    """
    if depth <= MAX_DEPTH and len(path) <= MAX_PATH:
        return path
    what = f"more than {MAX_DEPTH:,} directories deep" if depth > MAX_DEPTH else f"longer than {MAX_PATH:,} bytes"
    raise Terminal(
        f"the home cannot be archived: the path {_shown(path)!r} is {what}. Start the workspace and move or remove it"
    )


def _shown(path: bytes) -> str:
    return os.fsdecode(path[2:120]) + ("…" if len(path) > 120 else "")


def _directory(path: bytes, at: DirCursor, packed: Packed) -> bytes:
    packed.entries += 1
    entry = _entry(path, DIR, os.fstat(at.fd), _xattrs(at.fd, path))
    entry.mode = at.mode
    return encode(entry)


def _entry(path: bytes, kind: bytes, found: os.stat_result, xattrs: dict[str, bytes] | None = None) -> Entry:
    return Entry(
        name=path,
        kind=kind,
        mode=found.st_mode & 0o7777,
        uid=found.st_uid,
        gid=found.st_gid,
        mtime_ns=found.st_mtime_ns,
        xattrs=xattrs or {},
    )


def _xattrs(fd: int, path: bytes) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    left = _MAX_XATTRS
    for name, value in kept_xattrs(fd):
        left -= len(name) + len(value)
        if left < 0:
            raise Terminal(
                f"the home cannot be archived: {_shown(path)!r} has more than {_MAX_XATTRS >> 20} MiB of "
                "extended attributes. Start the workspace and remove some"
            )
        found[name] = value
    return found


def _file(dir_fd: int, name: str, path: bytes, links: FirstNames, out: _Out) -> Iterator[bytes]:
    found = os.stat(name, dir_fd=dir_fd, follow_symlinks=False)
    if stat.S_ISREG(found.st_mode):
        yield from _regular(dir_fd, name, path, links, out)
    elif stat.S_ISLNK(found.st_mode):
        entry = _entry(path, SYMLINK, found)
        entry.link = os.fsencode(os.readlink(name, dir_fd=dir_fd))
        out.packed.entries += 1
        out.add(encode(entry))
    elif stat.S_ISFIFO(found.st_mode):
        out.packed.entries += 1
        out.add(encode(_entry(path, FIFO, found)))


def _open(fd: int, name: str) -> int:
    try:
        return os.open(name, _OPEN_FILE, dir_fd=fd)
    except PermissionError:
        return open_unreadable(name, _OPEN_FILE, 0o400, fd)


def _regular(dir_fd: int, name: str, path: bytes, links: FirstNames, out: _Out) -> Iterator[bytes]:
    fd = _open(dir_fd, name)
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            raise Transient(
                f"{_shown(path)!r} changed while it was archived; is something still writing to the home?"
            )
        out.packed.entries += 1
        if found.st_nlink > 1:
            try:
                first = links.of(found, path)
            except TooManyLinks as error:
                raise Terminal(
                    f"the home cannot be archived: {error}. Start the workspace and remove some, such as "
                    "the store of a package manager"
                ) from error
            if first is not None:
                entry = _entry(path, LINK, found)
                entry.link = first
                out.add(encode(entry))
                return
        entry = _entry(path, FILE, found, _xattrs(fd, path))
        size = found.st_size
        if size > BLOCK and found.st_blocks * 512 < size and (holes := _segments(fd, size, path)) is not None:
            yield from _sparse(fd, entry, size, holes, out)
            return
        entry.size = size
        out.add(encode(entry))
        if not size:
            return
        yield from _content(fd, size, path, out)
        out.add(bytes(padding(size)))
    finally:
        os.close(fd)


def _content(fd: int, size: int, path: bytes, out: _Out) -> Iterator[bytes]:
    left = size
    while left:
        piece = os.read(fd, min(left, CHUNK))
        if not piece:
            raise Transient(f"{_shown(path)!r} shrank while it was archived; is something still writing to the home?")
        out.add(piece)
        left -= len(piece)
        if out.held >= CHUNK:
            yield out.take()


def _segments(fd: int, size: int, path: bytes) -> array[int] | None:
    """Return the offset and the length of each piece of data between holes, or None if there are no holes after all."""
    segments = array("Q")
    for start, end in data_segments(fd, size):
        if len(segments) == 2 * MAX_SEGMENTS:
            raise Terminal(
                f"the home cannot be archived: the sparse file {_shown(path)!r} has more than {MAX_SEGMENTS:,} holes. "
                "Start the workspace and remove it, or copy it with cp --sparse=never"
            )
        segments.extend((start, end - start))
    os.lseek(fd, 0, os.SEEK_SET)
    return None if segments == array("Q", (0, size)) else segments


def _sparse(fd: int, entry: Entry, size: int, segments: array[int], out: _Out) -> Iterator[bytes]:
    # GNU ends the map of a file that ends in a hole with an empty segment.
    if not segments or segments[-2] + segments[-1] < size:
        segments.extend((size, 0))
    table = bytearray(b"%d\n" % (len(segments) // 2))
    for number in segments:
        table += b"%d\n" % number
    table += bytes(padding(len(table)))
    stored = sum(segments[1::2])
    entry.size = len(table) + stored
    entry.sparse_size = size
    out.add(encode(entry))
    out.add(bytes(table))
    for offset, length in zip(segments[::2], segments[1::2], strict=True):
        if length:
            os.lseek(fd, offset, os.SEEK_SET)
            yield from _content(fd, length, entry.name, out)
    out.add(bytes(padding(stored)))
