"""File locks on Linux and macOS: flock, which belongs to the open file, so a child with the descriptor holds it too."""

from __future__ import annotations

# ruff: noqa: E402 - the modules below exist on one platform only, and the type checker must see that first
import sys

assert sys.platform != "win32"

import fcntl
import os


def open_lock_file(path: str) -> int:
    """Open or create a lock file for the owner only."""
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def try_lock(descriptor: int) -> bool:
    """Acquire the lock if it is free."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def is_locked(path: str) -> bool | None:
    """Whether the lock is held; None if the file does not exist. Concurrent checks do not disturb each other."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False
