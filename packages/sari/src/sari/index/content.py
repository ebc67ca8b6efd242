"""Reads one file for the index and determines its kind (text, binary and so on).

Follows ripgrep's rules: a file with a UTF-16 byte order mark is transcoded, and a NUL near the start means binary. For
a NUL further on, only ripgrep's own walk knows which lines come before it.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass

from sari.index.segment import ALONE, BINARY, LARGE, LARGE_ALONE, NEVER, TEXT, Stamp, stamp_of

# ripgrep searches its first buffer of 64 KiB for a NUL. Below this offset, a NUL certainly means no match.
_SURELY_BINARY = 60_000
_MARKS = (b"\xff\xfe", b"\xfe\xff")
MAX_INDEXED_BYTES = 4 << 20
# File times advance with the kernel's tick. A file changed within this time before it was read may change again
# undetected.
_TICK_NS = 50_000_000


@dataclass(frozen=True, slots=True)
class Content:
    """One file as it was read. `text` is the part to index, as UTF-8."""

    stamp: Stamp
    kind: int
    text: bytes


def is_fresh(mtime_ns: int, ctime_ns: int) -> bool:
    """Whether a file changed so recently that its times may not reveal the next change."""
    return max(mtime_ns, ctime_ns) > time.time_ns() - _TICK_NS


def read(path: bytes) -> Content | None:
    """Read a file. Returns None if it is no longer a regular file."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return _unreadable(path)
    try:
        stat = os.fstat(fd)
        stamp = NEVER if is_fresh(stat.st_mtime_ns, stat.st_ctime_ns) else stamp_of(stat)
        if stat.st_mode & 0o170000 != 0o100000:
            return None
        if stat.st_size > MAX_INDEXED_BYTES:
            return Content(stamp, _judge_large(fd), b"")
        data = b""
        while block := os.read(fd, stat.st_size + 1 - len(data) if stat.st_size >= len(data) else 1 << 16):
            data = data + block if data else block
        return _judge(data, stamp)
    except OSError:
        return Content(stamp_of(os.fstat(fd)), LARGE_ALONE, b"")
    finally:
        os.close(fd)


def _unreadable(path: bytes) -> Content | None:
    """Return a kind that every query passes to ripgrep, because the file may be readable by then."""
    try:
        stat = os.lstat(path)
    except OSError:
        return None
    return Content(stamp_of(stat), LARGE, b"") if stat.st_mode & 0o170000 == 0o100000 else None


def _judge_large(fd: int) -> int:
    """Determine a large file's kind by reading it in pieces."""
    block = os.read(fd, 1 << 20)
    if block[:2] in _MARKS:
        return LARGE_ALONE
    if b"\0" in block[:_SURELY_BINARY]:
        return BINARY
    while block:
        if b"\0" in block:
            return LARGE_ALONE
        block = os.read(fd, 1 << 20)
    return LARGE


def kind(path: bytes) -> int:
    """Return only the kind of a file, for a search before it is indexed."""
    read_now = read(path)
    return BINARY if read_now is None else read_now.kind


def _judge(data: bytes, stamp: Stamp) -> Content:
    if data[:2] in _MARKS:
        text = (
            data[2:]
            .decode("utf-16-le" if data[:2] == b"\xff\xfe" else "utf-16-be", "replace")
            .encode("utf-8", "replace")
        )
        return Content(stamp, ALONE if b"\0" in text else TEXT, text)
    nul = data.find(b"\0")
    if 0 <= nul < _SURELY_BINARY:
        return Content(stamp, BINARY, b"")
    return Content(stamp, TEXT if nul < 0 else ALONE, data)
