"""Runs npm on our Node, and functions that installers share: one install at a time, readable by every user."""

from __future__ import annotations

import contextlib
import fcntl
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

_FLAGS = ("--ignore-scripts", "--no-audit", "--no-fund", "--no-update-notifier", "--loglevel=error")


def run_npm(node: Path, cwd: Path, *arguments: str) -> str:
    """Run npm in `cwd`. Return its output if it failed, else an empty string."""
    env = {**os.environ, "PATH": f"{node / 'bin'}:{os.environ.get('PATH', '/usr/bin:/bin')}"}
    command = [str(node / "bin/node"), str(node / "lib/node_modules/npm/bin/npm-cli.js"), *arguments, *_FLAGS]
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return ""
    return (done.stderr or done.stdout).strip()[-800:] or f"npm ended with status {done.returncode}"


def readable_by_all(root: Path) -> None:
    """Make a tree readable by all users: workspaces run as other users than the one that installs."""
    for directory, _, names in os.walk(root):
        for path in (directory, *(os.path.join(directory, name) for name in names)):
            if not os.path.islink(path):
                mode = os.stat(path).st_mode
                os.chmod(path, mode | 0o444 | (0o111 if mode & 0o100 else 0))


@contextlib.contextmanager
def only_one(path: Path) -> Iterator[None]:
    """Hold the lock file at `path`. A second installer waits."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)
