"""Process information from the Windows API. Not tested, for lack of a Windows machine."""

from __future__ import annotations

# ruff: noqa: E402 - the modules below exist on one platform only, and the type checker must see that first
import sys

assert sys.platform == "win32"

import ctypes
from ctypes import wintypes

_QUERY_LIMITED_INFORMATION = 0x1000
_STILL_ACTIVE = 259
_ACCESS_DENIED = 5
# FILETIME counts 100 ns since 1601.
_EPOCH_OFFSET_S = 11_644_473_600


def start_mark(pid: int) -> str | None:
    """Return a mark that identifies the process even if its pid is reused; None if it does not exist."""
    at = started_at(pid)
    return None if at is None else f"{at:.7f}"


def started_at(pid: int) -> float | None:
    """Return when the process started, in seconds since the epoch (0 without permission to query it)."""
    kernel = ctypes.WinDLL("kernel32", use_last_error=True)
    handle = kernel.OpenProcess(_QUERY_LIMITED_INFORMATION, False, pid)
    if not handle:
        return 0.0 if ctypes.get_last_error() == _ACCESS_DENIED else None
    try:
        code = wintypes.DWORD()
        kernel.GetExitCodeProcess(handle, ctypes.byref(code))
        if code.value != _STILL_ACTIVE:
            return None
        times = [wintypes.FILETIME() for _ in range(4)]
        kernel.GetProcessTimes(handle, *(ctypes.byref(one) for one in times))
        return ((times[0].dwHighDateTime << 32) | times[0].dwLowDateTime) / 1e7 - _EPOCH_OFFSET_S
    finally:
        kernel.CloseHandle(handle)


def is_stopped(pid: int) -> bool:
    """Return False: Windows has no stopped processes."""
    return False
