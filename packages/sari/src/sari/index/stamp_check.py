"""Finds the files of a list that are no longer in the state that was recorded for them.

Also a program: `stamp_workers` runs this file by its path, without `site` and the rest of sari, because it must start in
milliseconds. It imports nothing that the interpreter does not bring along.
"""

from __future__ import annotations

import os
import sys
from array import array

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import IO


def differing(root: bytes, paths: Sequence[bytes], stamps: array[int]) -> array[int]:
    """Return the positions of the files whose state differs from the recorded one, and of those that are gone.

    Four numbers are recorded for each file, as in a segment: mtime, ctime, size, inode.
    """
    lstat = os.lstat
    base = root + b"/"
    found: array[int] = array("I")
    at = 0
    for number, path in enumerate(paths):
        try:
            now = lstat(base + path)
        except OSError:
            found.append(number)
        else:
            # With the same inode and ctime it is still a regular file.
            if (
                now.st_ctime_ns != stamps[at + 1]
                or now.st_mtime_ns != stamps[at]
                or now.st_size != stamps[at + 2]
                or now.st_ino & 0x7FFF_FFFF_FFFF_FFFF != stamps[at + 3]
            ):
                found.append(number)
        at += 4
    return found


def write_block(out: IO[bytes], data: bytes) -> None:
    """Write some bytes after their number."""
    out.write(len(data).to_bytes(8, "little"))
    out.write(data)


def read_block(source: IO[bytes]) -> bytes | None:
    """Return the next block; None at the end."""
    head = source.read(8)
    size = int.from_bytes(head, "little")
    data = source.read(size) if len(head) == 8 else b""
    return data if len(head) == 8 and len(data) == size else None


def _serve() -> None:
    """Read the root and all lists, then answer one list after the other."""
    source, out = sys.stdin.buffer, sys.stdout.buffer
    root = read_block(source) or b""
    lists = []
    while (joined := read_block(source)) is not None and (packed := read_block(source)) is not None:
        stamps: array[int] = array("q")
        stamps.frombytes(packed)
        lists.append((joined.split(b"\0") if joined else [], stamps))
    for paths, stamps in lists:
        write_block(out, differing(root, paths, stamps).tobytes())
        out.flush()


if __name__ == "__main__":
    _serve()
