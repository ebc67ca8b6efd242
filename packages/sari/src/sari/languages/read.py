"""Reads one file of a workspace for parsing: its text as UTF-8, and a stamp of its state when it was read."""

from __future__ import annotations

import os
from dataclasses import dataclass

from sari.languages import catalog
from sari.languages.parse import MAX_PARSED_BYTES, Symbol, symbols

_MARKS = {b"\xff\xfe": "utf-16-le", b"\xfe\xff": "utf-16-be"}


@dataclass(frozen=True, slots=True)
class Parsed:
    """A file's definitions in one state of the file. `failed`: it is too large, or the parser died of it."""

    stamp: int
    symbols: list[Symbol]
    failed: bool = False


def stamp_of(stat: os.stat_result) -> int:
    """Return one number for a state of a file."""
    return hash((stat.st_mtime_ns, stat.st_ctime_ns, stat.st_size, stat.st_ino))


def read_text(root: bytes, path: bytes, limit: int = 1 << 26) -> tuple[bytes, int] | None:
    """Return the text (UTF-16 is transcoded) and its stamp; None if it is not a regular file or is over the limit."""
    try:
        fd = os.open(os.path.join(root, path), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    with open(fd, "rb") as file:
        try:
            stat = os.fstat(fd)
            if stat.st_mode & 0o170000 != 0o100000 or stat.st_size > limit:
                return None
            # Its size may be another by now, and that of a file of the kernel is 0.
            data = file.read(limit + 1)
        except OSError:
            return None
    if len(data) > limit:
        return None
    encoding = _MARKS.get(data[:2])
    if encoding:
        data = data[2:].decode(encoding, "replace").encode("utf-8", "replace")
    return data.removeprefix(b"\xef\xbb\xbf"), stamp_of(stat)


def failed(root: bytes, path: bytes) -> Parsed | None:
    """Return an entry for a file that cannot be parsed in its current state; None if it no longer exists."""
    try:
        return Parsed(stamp_of(os.lstat(os.path.join(root, path))), [], failed=True)
    except OSError:
        return None


def symbols_of(root: bytes, path: bytes, limit: int = MAX_PARSED_BYTES) -> Parsed | None:
    """Return a file's symbols, none if it is binary or of an unknown language; None if it is missing or too large."""
    read = read_text(root, path, limit)
    if read is None:
        return None
    text, stamp = read
    language = catalog.of_file(os.fsdecode(path), text)
    if language is None or b"\0" in text[:8000]:
        return Parsed(stamp, [])
    return Parsed(stamp, symbols(language, text))
