"""A worker process: reads lists of files from standard input, writes segments, and answers with their sizes."""

from __future__ import annotations

import contextlib
import gc
import os
import sys
from pathlib import Path

from sari.index.build import build_one


def main() -> None:
    root = Path(sys.argv[1])
    # There are no reference cycles here, and searching for them would take a tenth of the time.
    gc.disable()
    with contextlib.suppress(OSError, AttributeError):
        os.nice(5)
    stdin = sys.stdin.buffer
    while len(head := stdin.read(4)) == 4:
        size = int.from_bytes(head, "little")
        payload = stdin.read(size)
        if len(payload) != size:
            return
        target, *paths = payload.split(b"\0")
        count = build_one(root, paths, Path(os.fsdecode(target)), lambda: False)
        sys.stdout.write(f"{count}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
