"""A process that only indexes a workspace, for tests that kill it: `python -m testing.sari.indexer ROOT DATA`.

Builds many small segments in worker processes, so that a kill falls between two of them. Prints `settled` when done, and
exits when its standard input ends.
"""

from __future__ import annotations

import sys
from pathlib import Path

from sari.index import build
from sari.index.workspace_index import WorkspaceIndex


def main() -> None:
    build.ALONE_BELOW, build.CHUNK = 100, 150
    index = WorkspaceIndex(Path(sys.argv[1]), Path(sys.argv[2]))
    index.wait_settled(120)
    sys.stdout.write("settled\n")
    sys.stdout.flush()
    sys.stdin.read()
    index.close()


if __name__ == "__main__":
    main()
