"""Copies whole trees with `cp`, which keeps owners, times, links, extended attributes and holes."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from codehub.cli.stack.children import die_with_parent


def copy_tree(source: Path | str, target: Path) -> list[str]:
    """Copy a tree and return what `cp` reported, one problem per line."""
    done = subprocess.run(
        ["cp", "-a", "--reflink=auto", "--", str(source), str(target)],
        env={"PATH": os.defpath, "LC_ALL": "C"},
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
        preexec_fn=die_with_parent(os.getpid()),
    )
    problems = done.stderr.splitlines()
    if done.returncode < 0:
        problems.append(f"cp was ended by signal {-done.returncode}")
    return problems


def sync_disk(directory: Path) -> None:
    """Wait until everything on the file system of this directory is on its disk."""
    subprocess.run(["sync", "-f", "--", str(directory)], env={"PATH": os.defpath}, check=True)
