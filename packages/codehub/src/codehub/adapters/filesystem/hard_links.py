"""The first names of files that have several. Its memory is bounded: a workspace decides how many such files there are."""

from __future__ import annotations

import os

# For some 700,000 files, more than the stores of package managers have.
_MOST_BYTES = 256 << 20
_BESIDE_PATH = 256  # bytes that an entry takes


class TooManyLinks(Exception):
    """A tree has more files with several names than can be remembered."""


class FirstNames:
    def __init__(self) -> None:
        self._left = _MOST_BYTES
        self._paths: dict[tuple[int, int], bytes] = {}

    def of(self, found: os.stat_result, path: bytes) -> bytes | None:
        """Return the path under which this file was seen before. If it is the first, remember it and return None."""
        key = found.st_dev, found.st_ino
        first = self._paths.get(key)
        if first is None:
            self._left -= len(path) + _BESIDE_PATH
            if self._left < 0:
                raise TooManyLinks("it has too many files with several names (hard links)")
            self._paths[key] = path
        return first
