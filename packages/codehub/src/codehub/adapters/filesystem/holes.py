"""Finds the data between the holes of a sparse file."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator


def data_segments(fd: int, size: int) -> Iterator[tuple[int, int]]:
    """Yield where data begins and ends in the first `size` bytes. Moves the descriptor's position."""
    at = 0
    while at < size:
        try:
            start = os.lseek(fd, at, os.SEEK_DATA)
        except OSError as error:
            # Any other error says nothing about what is there: taking it for a hole would lose data.
            if error.errno != errno.ENXIO:
                raise
            return
        at = min(os.lseek(fd, start, os.SEEK_HOLE), size)
        if start < at:
            yield start, at
