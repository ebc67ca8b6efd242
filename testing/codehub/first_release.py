"""The first release, as it was: its source is kept beside this file, so that tests need no history of the clone.

Written once with `git archive 24ae4f3b:packages/codehub/src | xz -9e`; its newest migration is 0002.
"""

from __future__ import annotations

import tarfile
from pathlib import Path
from typing import Final

ARCHIVE: Final = Path(__file__).parent / "releases/first.tar.xz"
# What git calls the directory: `git rev-parse 24ae4f3b:packages/codehub/src`.
TREE: Final = "41811cc0233300ede2bc8a9b7cb1dc2c58df2b52"


def unpack_first_release(place: Path) -> Path:
    """Return the directory to put on PYTHONPATH."""
    source = place / "first-release"
    source.mkdir(mode=0o755)
    with tarfile.open(ARCHIVE) as tar:
        tar.extractall(source, filter="data")
    return source
