"""A worker process that reads files and writes term segments: reads one JSON line and writes the number of files.

Splitting text holds the GIL, so it runs in a separate process in order not to slow the daemon's answers.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import sqlite3
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from sari.ranking.extract import file_terms
from sari.ranking.term_segment import write_segment


def build_segment(root: bytes, target: Path, files: Iterable[tuple[bytes, Sequence[str] | None]]) -> int:
    """Read files, with the names that they define if known, and write a segment of those that exist."""
    found = (file_terms(root, path, names) for path, names in files)
    # One file at a time: the terms of a large batch take hundreds of megabytes.
    return write_segment(target, (file for file in found if file is not None))


def main() -> None:
    root = os.fsencode(sys.argv[1])
    # There are no reference cycles here.
    gc.disable()
    with contextlib.suppress(OSError, AttributeError):
        os.nice(10)
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
