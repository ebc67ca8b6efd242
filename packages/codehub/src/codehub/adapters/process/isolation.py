"""Detects by one trial what this machine supports to isolate workspaces, with the reason for what it does not."""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from codehub.adapters.process.cgroup import Cgroups, find_cgroups
from codehub.adapters.process.sandbox import bubblewrap

_SOURCES = Path(__file__).parents[3]
_PROBE_TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True)
class Isolation:
    """Paths of the programs, empty if they are missing or do not work here. `missing` explains why, for users."""

    bubblewrap: str
    slirp: str
    cgroups: Cgroups | None
    missing: tuple[str, ...]

    @property
    def separates_users(self) -> bool:
        """Return whether a user's workspace can neither see another user's files nor reach their ports."""
        return bool(self.bubblewrap and self.slirp)

    def why_refused(self, setting: str, isolated_before: Path | None) -> str:
        """Return why no workspace is started with this isolation; empty if it is. Several users are a reason too."""
        if self.separates_users or setting == "best-effort":
            return ""
        if setting == "required":
            return "CODEHUB_ISOLATION=required"
        if isolated_before is not None and isolated_before.exists():
            return "workspaces have been isolated here before"
        return ""


@cache
def find_isolation() -> Isolation:
    """Detect the isolation. Blocking, about 100 ms the first time."""
    wrapper, slirp = bubblewrap(), shutil.which("slirp4netns")
    missing = []
    if wrapper is None:
        missing.append(
            "workspaces see each other's files: bubblewrap is not installed, or the kernel does not let it work"
        )
    if slirp is None:
        missing.append("workspaces share this machine's network: slirp4netns is not installed")
    elif (why := _network_fails(slirp)) is not None:
        missing.append(f"workspaces share this machine's network: slirp4netns does not work here ({why})")
        slirp = None
    cgroups = find_cgroups()
    if cgroups is None:
        missing.append(
            "memory, CPU and processes of a workspace are not limited: no control groups can be made here "
            "(run CodeHub as root, or have systemd delegate a subtree: Delegate=yes)"
        )
    return Isolation(wrapper or "", slirp or "", cgroups, tuple(missing))


def command_line(function: str, *arguments: str) -> list[str]:
    """Return a command that runs `module:function` in a Python with only the standard library and our own modules."""
    module, _, name = function.partition(":")
    code = f"import sys; sys.path.append(sys.argv.pop(1)); from {module} import {name}; sys.exit({name}())"
    return [sys.executable, "-I", "-S", "-B", "-c", code, str(_SOURCES), *arguments]


def _network_fails(slirp: str) -> str | None:
    try:
        tried = subprocess.run(
            command_line("codehub.adapters.process.confinement:try_network", slirp),
            capture_output=True,
            text=True,
            check=False,
            timeout=_PROBE_TIMEOUT_S,
        )
    except subprocess.TimeoutExpired:
        return "it does not come up"
    return None if tried.returncode == 0 else (tried.stderr.strip().splitlines() or ["no way out"])[-1]
