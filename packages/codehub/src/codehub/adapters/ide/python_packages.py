"""Installs Python packages for workspaces with pip or uv, from a lock file with hashes.

Never installs into CodeHub's environment.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from codehub.domain.errors import Transient


def install_packages(lock: Path, where: Sequence[str], python: Path | None = None) -> None:
    """Install everything in `lock`, checked by hash. `where` and `python` determine the destination."""
    options = ["--require-hashes", "--no-deps", *where, "-r", str(lock)]
    problem = "neither pip nor uv is installed"
    for command in _installers(python):
        done = subprocess.run([*command, *options], capture_output=True, text=True, check=False, env=dict(os.environ))
        if done.returncode == 0:
            return
        problem = done.stderr.strip()[-500:]
    raise Transient(problem)


def _installers(python: Path | None) -> list[list[str]]:
    pip = [sys.executable, "-m", "pip"]
    found = [
        [*pip, *(("--python", str(python)) if python else ()), "install", "--disable-pip-version-check", "--quiet"]
    ]
    if uv := shutil.which("uv", path=f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}"):
        # Workspaces cannot write the bytecode themselves: without it, a kernel compiles all its packages at every start.
        command = [uv, "pip", "install", "--quiet", "--compile-bytecode", "--python", str(python or sys.executable)]
        found.insert(0, command)
    return found
