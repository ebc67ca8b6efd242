"""A person's machine for sari's tests: a home of its own, free ports, a workspace, and a daemon that is surely reaped."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

SARI = str(Path(sys.executable).with_name("sari"))
# Nothing here is expected to take more than seconds; a crowded machine may.
PATIENCE_S = 120.0


class SariHome:
    """sari run by one person. `command` may be another installation's."""

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
        """A file of the workspace."""
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
            timeout=PATIENCE_S,
            check=False,
        )

    def sari(self, *words: str) -> subprocess.CompletedProcess[str]:
        return self.run(self.command, *words)

    def start(self) -> None:
        done = self.sari("daemon", "start")
        assert done.returncode == 0, done.stderr

    def info(self) -> Mapping[str, object]:
        """What the running daemon says of itself."""
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

    def daemon_pids(self) -> list[int]:
        """Every daemon the registry or a lifetime lock names."""
        data = self.home / ".local" / "share" / "sari"
        pids: set[int] = set()
        for file in (data / "server.json", *data.glob("locks/*.lock")):
            with contextlib.suppress(OSError, ValueError):
                content = json.loads(file.read_text())
                entries = content.get("daemons", {}).values() if "daemons" in content else [content]
                pids.update(entry["pid"] for entry in entries if isinstance(entry.get("pid"), int))
        return sorted(pids)

    def end(self) -> None:
        """No daemon of this home is left; one that is gone already is as good."""
        pids = [pid for pid in self.daemon_pids() if self._is_ours(pid)]
        for sent in (signal.SIGTERM, signal.SIGKILL):
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, sent)
            deadline = time.monotonic() + (10 if sent == signal.SIGTERM else PATIENCE_S)
            while any(self._is_ours(pid) for pid in pids) and time.monotonic() < deadline:
                time.sleep(0.05)

    def _is_ours(self, pid: int) -> bool:
        """A pid may have been given to somebody else meanwhile."""
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            return False
        return b"sari.daemon" in words and os.fsencode(self.home) in words


@contextlib.contextmanager
def sari_home(folder: Path, command: str = SARI) -> Iterator[SariHome]:
    home = SariHome(folder, command)
    try:
        yield home
    finally:
        home.end()
