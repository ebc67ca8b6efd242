"""The first release, as it was: its source is kept beside this file, so that tests need no history of the clone.

Written once with `git archive 24ae4f3b:packages/codehub/src | xz -9e`; its newest migration is 0002.
"""

from __future__ import annotations

import os
import subprocess
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


def tree_of(source: Path, scratch: Path) -> str:
    """Return what git calls this directory. `scratch` is for a repository."""
    environment = {**os.environ, "GIT_DIR": str(scratch), "GIT_WORK_TREE": str(source)}

    def git(*words: str) -> str:
        command = ["git", "-c", "core.autocrlf=false", *words]
        return subprocess.run(
            command, env=environment, cwd=source, check=True, capture_output=True, text=True
        ).stdout.strip()

    git("init", "--quiet")
    git("add", "--force", "--all")
    return git("write-tree")
