"""File locks on Linux and macOS: flock, which belongs to the open file, so a child given the descriptor holds it too."""

from __future__ import annotations

# ruff: noqa: E402 - what follows exists on one platform only, and the type checker must see that first
import sys

assert sys.platform != "win32"

import fcntl
import os


def open_lock_file(path: str) -> int:
    """Open (or make) a lock file for the owner only."""
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def try_lock(descriptor: int) -> bool:
    """Take the lock if it is free."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def is_locked(path: str) -> bool | None:
    """Whether someone holds the lock; None when there is no such file. Askers do not get in each other's way."""
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
