"""Asks the kernel to start writing a large file to the disk while it is still being written.

Otherwise all data waits in memory for the flush at the end, when there is no other work to overlap it with.
"""

from __future__ import annotations

import ctypes

_EVERY_BYTES = 16 << 20
_SYNC_FILE_RANGE_WRITE = 2
_sync_file_range = getattr(ctypes.CDLL(None, use_errno=True), "sync_file_range", None)  # Linux only
if _sync_file_range is not None:
    _sync_file_range.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)


class Writeback:
    """Writeback of one file that is written sequentially. Only a hint: callers that need durability must still sync."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._done = 0
        self._begun = 0

    def wrote(self, count: int) -> None:
        self._done += count
        if self._done - self._begun >= _EVERY_BYTES:
            if _sync_file_range is not None:
                _sync_file_range(self._fd, self._begun, self._done - self._begun, _SYNC_FILE_RANGE_WRITE)
            self._begun = self._done
