"""A worker process that reads files and writes term segments: reads one JSON line and writes how many files it read.

Splitting text holds the GIL, so it runs in a separate process in order not to slow the daemon's answers.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import sqlite3
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from sari.ranking.extract import file_terms
from sari.ranking.term_segment import FileTerms, write_segment

_MOST_DATA_BYTES = 2 << 30


def build_segment(root: bytes, target: Path, files: Iterable[tuple[bytes, Sequence[str]]]) -> int:
    """Read files, with the names that they define, and write a segment of those that exist. Returns how many it read: not
    all of them if their terms would take too much memory.
    """
    count = 0

    def found() -> Iterator[FileTerms]:
        nonlocal count
        # One file at a time: the terms of a large batch take hundreds of megabytes.
        for path, names in files:
            count += 1
            file = file_terms(root, path, names)
            if file is not None:
                yield file

    write_segment(target, found())
    return count


def main() -> None:
    root = os.fsencode(sys.argv[1])
    # There are no reference cycles here.
    gc.disable()
    with contextlib.suppress(OSError, AttributeError):
        os.nice(10)
    if sys.platform == "linux":
        import resource

        resource.setrlimit(resource.RLIMIT_DATA, (_MOST_DATA_BYTES, _MOST_DATA_BYTES))
    for line in sys.stdin.buffer:
        target, files = json.loads(line)
        try:
            count = build_segment(root, Path(target), [(os.fsencode(path), names) for path, names in files])
        except (OSError, sqlite3.Error):
            count = -1
        sys.stdout.write(f"{count}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
