"""Reads the small files of a repository by which it is listed and opened: ignore files, and files of `.git`.

A repository can have anything under these names: a named pipe, on which opening waits for ever, or a link to a device
without an end.
"""

from __future__ import annotations

import os


def read_regular(path: str | bytes | os.PathLike[str], most_bytes: int) -> bytes | None:
    """Return the content of a regular file; None if it is none, is missing, or is larger."""
    content = read_start(path, most_bytes + 1)
    return None if content is None or len(content) > most_bytes else content


def copy_regular(path: str | bytes | os.PathLike[str], target: str | os.PathLike[str], most_bytes: int) -> bool:
    """Copy a regular file piece by piece. Returns False if it is none, is missing, or is larger."""
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0))
    except OSError:
        return False
    with open(descriptor, "rb") as file:
        if os.fstat(descriptor).st_mode & 0o170000 != 0o100000:
            return False
        with open(target, "wb") as out:
            left = most_bytes
            while left >= 0 and (chunk := file.read(1 << 20)):
                left -= len(chunk)
                out.write(chunk)
    return left >= 0


def read_start(path: str | bytes | os.PathLike[str], most_bytes: int) -> bytes | None:
    """Return the first bytes of a regular file; None if it is none or is missing."""
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0))
    except (OSError, ValueError):
        # A path that the repository names may contain a NUL.
        return None
    try:
        if os.fstat(descriptor).st_mode & 0o170000 != 0o100000:
            return None
        with open(descriptor, "rb", closefd=False) as file:
            return file.read(most_bytes)
    except OSError:
        return None
    finally:
        os.close(descriptor)
