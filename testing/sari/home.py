"""A user's machine for sari's tests: a separate home, free ports, a workspace, and a daemon that is reliably stopped."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from testing.sari.processes import end_all

SARI = str(Path(sys.executable).with_name("sari"))
# Nothing here normally takes more than seconds, but a busy machine may be slower.
TIMEOUT_S = 120.0


class SariHome:
    """sari as run by one user. `command` may belong to another installation."""

    def __init__(self, folder: Path, command: str = SARI) -> None:
        self.home = folder / "home"
        self.workspace = folder / "work"
        self.command = command
        self.home.mkdir(parents=True)
        (self.workspace / ".git").mkdir(parents=True)
        self.environment: dict[str, str] = {
            "HOME": str(self.home),
            "PATH": os.environ["PATH"],
            "SARI_DAEMON_PORT": "0",
            "SARI_HTTP_PORT": "0",
        }

    def write(self, path: str, text: str) -> Path:
        """Write a file of the workspace."""
        target = self.workspace / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
        return target

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            words,
            cwd=self.workspace,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )

    def sari(self, *words: str) -> subprocess.CompletedProcess[str]:
        return self.run(self.command, *words)

    def start(self) -> None:
        done = self.sari("daemon", "start")
        assert done.returncode == 0, done.stderr

    def info(self) -> Mapping[str, object]:
        """Return the running daemon's information about itself."""
        info: Mapping[str, object] = json.loads(self.sari("status", "--json").stdout)
        return info

    @property
    def http_port(self) -> int:
        port = self.info()["http_port"]
        assert isinstance(port, int)
        return port

    @property
    def token(self) -> str:
        return (self.home / ".local" / "share" / "sari" / "token").read_text().strip()

    def end(self) -> None:
        """End all processes of this home."""
        end_all(self.home)


@contextlib.contextmanager
def sari_home(folder: Path, command: str = SARI) -> Iterator[SariHome]:
    home = SariHome(folder, command)
    try:
        yield home
    finally:
        home.end()
