"""File locks on Windows: one byte far beyond the content, which stays readable. Not tested, for lack of a Windows
machine.
"""

from __future__ import annotations

# ruff: noqa: E402 - the modules below exist on one platform only, and the type checker must see that first
import sys

assert sys.platform == "win32"

import msvcrt
import os

_LOCKED_BYTE = 1 << 30


def open_lock_file(path: str) -> int:
    """Open or create a lock file."""
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOINHERIT, 0o600)


def try_lock(descriptor: int) -> bool:
    """Acquire the lock if it is free."""
    os.lseek(descriptor, _LOCKED_BYTE, os.SEEK_SET)
    try:
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
    except OSError:
        return False
    return True


def is_locked(path: str) -> bool | None:
    """Whether the lock is held; None if the file does not exist."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_NOINHERIT)
    except FileNotFoundError:
        return None
    try:
        free = try_lock(descriptor)
        if free:
            os.lseek(descriptor, _LOCKED_BYTE, os.SEEK_SET)
            msvcrt.locking(descriptor, msvcrt.LK_UNLCK, 1)
        return not free
    finally:
        os.close(descriptor)
