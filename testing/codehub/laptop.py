"""A workspace owner's machine, set up for SSH: OpenSSH's client with the output of `codehub config-ssh`."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

from testing.codehub.doors import Doors
from testing.codehub.full_stack import TIMEOUT_S


class Laptop:
    """A home in which `codehub config-ssh` was run."""

    def __init__(self, doors: Doors, home: Path) -> None:
        self.doors = doors
        self.home = home
        self.host = f"{doors.workspace_id}.codehub"
        self.config = home / ".ssh" / "config"
        self.environment = {
            **doors.stack.environment,
            "HOME": str(home),
            "CODEHUB_SERVER": doors.stack.url,
            "CODEHUB_TOKEN": doors.token,
        }
        self.codehub = doors.stack.command
        done = self.run(*doors.stack.command("config-ssh", "--yes", "--file", str(self.config)))
        assert done.returncode == 0, done.stderr

    def run(self, *words: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            words,
            env=self.environment,
            input=stdin,
            capture_output=True,
            timeout=TIMEOUT_S,
            check=False,
            cwd=self.home,
        )

    def ssh(self, *words: str, stdin: bytes = b"") -> bytes:
        done = self.run("ssh", "-F", str(self.config), *words, stdin=stdin)
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout

    @contextlib.contextmanager
    def background(self, *words: str) -> Iterator[subprocess.Popen[bytes]]:
        process = subprocess.Popen(
            ["ssh", "-F", str(self.config), *words],
            env=self.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        try:
            yield process
        finally:
            process.kill()
            process.communicate()
