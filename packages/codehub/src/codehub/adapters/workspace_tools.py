"""CodeHub's tools for workspaces, as a directory that is used at `/opt/codehub`: Python, `workspaced` and OpenSSH's server.

They run in any image (see `portable`). The Docker backend keeps them in a volume. CodeHub's own image contains them, and an
init container copies them into each Pod: `python -m codehub.adapters.workspace_tools DIRECTORY` prepares them.
"""

from __future__ import annotations

import hashlib
import shutil
import sys
from functools import cache
from pathlib import Path
from typing import Final

from codehub.adapters.portable import loader_of, put_compiled, put_programs, put_python, python_program
from codehub.adapters.workspaced_launch import FOLDER as WORKSPACED

PLACE: Final = "/opt/codehub"
PYTHON: Final = f"{PLACE}/bin/python3"
# Where CodeHub's image has them prepared.
PREPARED: Final = Path(sys.prefix) / "share/codehub/tools"
_FORMAT: Final = "3"  # of the content, for a version that nothing else changes
_SSH: Final = (("sshd", "sbin"), ("ssh-keygen", "bin"))
_SYSTEM_PATH: Final = "/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/sbin:/usr/local/bin"
# An image's start script runs its IDE with this, to give it the variables that `workspaced` receives from CodeHub.
_WITH_ENVIRONMENT: Final = f'#!/bin/sh\nexec {PYTHON} -I -S -B {PLACE}/workspaced/with_environment.py "$@"\n'


@cache
def tools_version() -> str:
    """Return a hash of the content: it changes with `workspaced`, Python and OpenSSH."""
    digest = hashlib.sha256(f"{_FORMAT} {sys.version}".encode())
    for path in sorted(WORKSPACED.glob("*.py")):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    for program in (python_program(), loader_of(python_program()), *filter(None, map(_which, dict(_SSH)))):
        found = program.stat()
        digest.update(f"{program} {found.st_size} {found.st_mtime_ns}".encode())
    return digest.hexdigest()[:12]


def _which(name: str) -> Path | None:
    found = shutil.which(name, path=_SYSTEM_PATH)
    return Path(found).resolve() if found else None


def stage_tools(place: Path) -> None:
    put_python(place, PLACE)
    programs = [(program, place / folder / name) for name, folder in _SSH if (program := _which(name)) is not None]
    put_programs(programs, place / "lib", [f"{PLACE}/lib"])
    wrapper = place / "bin/with-environment"
    wrapper.write_text(_WITH_ENVIRONMENT)
    wrapper.chmod(0o755)
    shutil.copytree(WORKSPACED, place / "workspaced", ignore=shutil.ignore_patterns("__pycache__"))
    put_compiled(place / "workspaced")


if __name__ == "__main__":
    stage_tools(Path(sys.argv[1]))
