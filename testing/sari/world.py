"""A separate world for a test of sari's lifecycle: a home, workspaces, shims, and the end of all its processes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from sari import __version__
from sari.registry.client import DaemonClient
from sari.registry.layout import Layout
from sari.registry.usual import connect_usual
from testing.sari.processes import daemons_of, end_all, processes_of, wait_until
from testing.sari.shim import SARI, Shim


class World:
    """One user's home. By default, any free ports are used."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self.home = base / "home"
        self.home.mkdir()
        self.environ = {
            "HOME": str(self.home),
            "PATH": os.environ["PATH"],
            "SARI_DAEMON_PORT": "0",
            "SARI_HTTP_PORT": "0",
        }
        self.shims: list[Shim] = []

    @property
    def data(self) -> Path:
        """Return where sari keeps its files."""
        return self.home / ".local/share/sari"

    @property
    def registry_file(self) -> Path:
        return self.data / "server.json"

    def registry(self) -> dict[str, Any]:
        """Return the current content of the registry file."""
        content = json.loads(self.registry_file.read_text())
        assert isinstance(content, dict)
        return content

    def workspace(self, name: str, **files: str) -> Path:
        """Create a workspace with a `.git` and some files, `name__txt` for name.txt."""
        root = self.base / name
        (root / ".git").mkdir(parents=True)
        for file, text in (files or {"hello__txt": "a needle in here\n"}).items():
            (root / file.replace("__", ".")).write_text(text)
        return root

    def shim(self, directory: Path, *words: str, **more: Any) -> Shim:
        """Start `sari mcp` in a directory."""
        environ = {**self.environ, **more.pop("environ", {})}
        shim = Shim(environ, directory, *words, **more)
        self.shims.append(shim)
        return shim

    def sari(self, *words: str, sari: str = SARI, **environ: str) -> subprocess.CompletedProcess[str]:
        """Run a command to its end."""
        return subprocess.run(
            [sari, *words],
            env={**self.environ, **environ},
            cwd=self.base,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )

    def open_workspace(self, root: Path) -> None:
        """Open a workspace in the daemon, which is started if there is none: only the daemon knows symbols."""
        done = self.sari("symbols", "no_such_name", "--workspace", str(root))
        assert (done.returncode, done.stdout) == (1, ""), done

    def daemons(self) -> list[int]:
        """Return the live daemons, from the process table."""
        return daemons_of(self.home)

    def processes(self) -> list[int]:
        """Return all our live processes, from the process table."""
        return processes_of(self.home)

    def one_daemon(self) -> int:
        """Return the only daemon."""
        daemons = self.daemons()
        assert len(daemons) == 1, daemons
        return daemons[0]

    def is_warm(self, root: Path) -> bool:
        """Return whether the daemon says that a workspace is indexed and watched."""
        usual = connect_usual(Layout(str(self.registry_file)), str(root), __version__)
        if usual is None:
            return False
        with DaemonClient(usual[0]) as client:
            return client.open_session("test", str(root))

    def wait_for_one_daemon(self) -> int:
        """Wait until exactly one daemon is left and return its pid."""
        wait_until(lambda: len(self.daemons()) == 1, "one daemon")
        return self.one_daemon()

    def wait_for_only(self, *pids: int) -> None:
        """Wait until only these processes live. The daemon's children (ripgrep) come and go."""
        wait_until(lambda: sorted(self.processes()) == sorted(pids), f"only {pids} live: {self.processes()}")

    def end_shims(self) -> None:
        """Close every client's stdin and wait for the shims to end."""
        for shim in self.shims:
            shim.close_stdin()
        for shim in self.shims:
            shim.end()

    def close(self) -> None:
        """End everything: nothing outlives a test."""
        for shim in self.shims:
            shim.kill()
        end_all(self.home)


@contextmanager
def new_world() -> Iterator[World]:
    """Yield a world on a short path, and remove it with all its processes."""
    base = Path(tempfile.mkdtemp(prefix="sari-t-"))
    made = World(base)
    try:
        yield made
    finally:
        made.close()
        remove_tree(base)


@pytest.fixture
def world() -> Iterator[World]:
    """A fresh world."""
    with new_world() as made:
        yield made


@pytest.fixture
def other_world() -> Iterator[World]:
    """Another world: another home, another registry, another token."""
    with new_world() as made:
        yield made


def remove_tree(path: Path) -> None:
    """Remove a tree into which a process that was just killed may still have been writing."""

    def gone() -> bool:
        shutil.rmtree(path, ignore_errors=True)
        return not path.exists()

    wait_until(gone, f"{path} is removed")
