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

from codehub.adapters.filesystem.dir_cursor import DirCursor, open_unreadable
from codehub.adapters.filesystem.holes import data_segments
from codehub.adapters.filesystem.xattrs import kept_xattrs
from codehub.adapters.tarball.format import (
    BLOCK,
    DIR,
    END,
    FIFO,
    FILE,
    LINK,
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
    links: dict[tuple[int, int], bytes] = {}
    with DirCursor(root) as at:
        prefix: list[bytes] = [b"./"]
        out.add(_directory(b".", at.fd, packed))
        files, directories = _list(at.fd)
        pending = [[name for name in directories if name not in leave_out]]
        yield from _files(at.fd, prefix[-1], files, links, out, cancelled)
        while pending:
            if not pending[-1]:
                pending.pop()
                prefix.pop()
                if pending:
                    at.leave()
                continue
            name = pending[-1].pop()
            fd = at.enter(name)
            path = bounded(prefix[-1] + os.fsencode(name), len(pending))
            prefix.append(path + b"/")
            out.add(_directory(path, fd, packed))
            files, directories = _list(fd)
            pending.append(directories)
            yield from _files(fd, prefix[-1], files, links, out, cancelled)
    out.add(END)
    yield out.take()


def bounded(path: bytes, depth: int = 0) -> bytes:
    """Return the path if it is short enough.

    Each entry repeats its full path: otherwise 12 MB of nested directories become a 1 GB archive.
    """
    if depth <= MAX_DEPTH and len(path) <= MAX_PATH:
        return path
    shown = os.fsdecode(path[2:120]) + ("…" if len(path) > 120 else "")
    what = f"more than {MAX_DEPTH:,} directories deep" if depth > MAX_DEPTH else f"longer than {MAX_PATH:,} bytes"
    raise Terminal(
        f"the home cannot be archived: the path {shown!r} is {what}. Start the workspace and move or remove it"
    )


def _list(fd: int) -> tuple[list[os.DirEntry[str]], list[str]]:
    files: list[os.DirEntry[str]] = []
    directories: list[str] = []
    with os.scandir(fd) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                directories.append(entry.name)
            else:
                files.append(entry)
    return files, directories


def _directory(path: bytes, fd: int, packed: Packed) -> bytes:
    packed.entries += 1
    found = os.fstat(fd)
    return encode(_entry(path, DIR, found, xattrs=kept_xattrs(fd)))


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


def _files(
    fd: int,
    prefix: bytes,
    files: list[os.DirEntry[str]],
    links: dict[tuple[int, int], bytes],
    out: _Out,
    cancelled: Callable[[], bool],
) -> Iterator[bytes]:
    for listed in files:
        path = bounded(prefix + os.fsencode(listed.name))
        if listed.is_file(follow_symlinks=False):
            yield from _file(fd, listed.name, path, links, out)
        else:
            found = listed.stat(follow_symlinks=False)
            if stat.S_ISLNK(found.st_mode):
                entry = _entry(path, SYMLINK, found)
                entry.link = os.fsencode(os.readlink(listed.name, dir_fd=fd))
                out.packed.entries += 1
                out.add(encode(entry))
            elif stat.S_ISFIFO(found.st_mode):
                out.packed.entries += 1
                out.add(encode(_entry(path, FIFO, found)))
        if out.held >= CHUNK:
            if cancelled():
                return
            yield out.take()


def _open(fd: int, name: str) -> int:
    try:
        return os.open(name, _OPEN_FILE, dir_fd=fd)
    except PermissionError:
        return open_unreadable(name, _OPEN_FILE, 0o400, fd)


def _file(dir_fd: int, name: str, path: bytes, links: dict[tuple[int, int], bytes], out: _Out) -> Iterator[bytes]:
    fd = _open(dir_fd, name)
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            raise Transient(f"{name!r} changed while it was archived; is something still writing to the home?")
        out.packed.entries += 1
        if found.st_nlink > 1:
            first = links.setdefault((found.st_dev, found.st_ino), path)
            if first is not path:
                entry = _entry(path, LINK, found)
                entry.link = first
                out.add(encode(entry))
                return
        entry = _entry(path, FILE, found, kept_xattrs(fd))
        size = found.st_size
        if size > BLOCK and found.st_blocks * 512 < size and (holes := _segments(fd, size, name)) is not None:
            yield from _sparse(fd, entry, size, holes, out)
            return
        entry.size = size
        out.add(encode(entry))
        if not size:
            return
        yield from _content(fd, size, name, out)
        out.add(bytes(padding(size)))
    finally:
        os.close(fd)


def _content(fd: int, size: int, name: str, out: _Out) -> Iterator[bytes]:
    left = size
    while left:
        piece = os.read(fd, min(left, CHUNK))
        if not piece:
            raise Transient(f"{name!r} shrank while it was archived; is something still writing to the home?")
        out.add(piece)
        left -= len(piece)
        if out.held >= CHUNK:
            yield out.take()


def _segments(fd: int, size: int, name: str) -> array[int] | None:
    """Return offset and length of each piece of data between holes, or None if there are no holes after all."""
    segments = array("Q")
    for start, end in data_segments(fd, size):
        if len(segments) == 2 * MAX_SEGMENTS:
            raise Terminal(
                f"the home cannot be archived: {name!r} has more than {MAX_SEGMENTS:,} holes. "
                "Start the workspace and copy or remove the file"
            )
        segments.extend((start, end - start))
    os.lseek(fd, 0, os.SEEK_SET)
    return None if segments.tolist() == [0, size] else segments


def _sparse(fd: int, entry: Entry, size: int, segments: array[int], out: _Out) -> Iterator[bytes]:
    stored = sum(segments[1::2])
    # GNU ends the map of a file that ends in a hole with an empty segment.
    if not segments or segments[-2] + segments[-1] < size:
        segments.extend((size, 0))
    table = b"%d\n" % (len(segments) // 2) + b"".join(map(b"%d\n".__mod__, segments))
    table += bytes(padding(len(table)))
    entry.size = len(table) + stored
    entry.sparse_size = size
    out.add(encode(entry))
    out.add(table)
    for offset, length in zip(segments[::2], segments[1::2], strict=True):
        if length:
            os.lseek(fd, offset, os.SEEK_SET)
            yield from _content(fd, length, os.fsdecode(entry.name), out)
    out.add(bytes(padding(stored)))
