"""A complete CodeHub as a user runs it, for tests: `codehub up` on a separate data directory, and commands on it.

All processes are real: PostgreSQL, Valkey, API, proxy and coordinator. `tiny_ide` provides an IDE that starts at once.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import psutil

from testing.codehub import tiny_ide
from testing.codehub.ide import put_tools
from testing.codehub.services import service_dir

TIMEOUT_S = 280.0


class Stack:
    """One data directory and the `codehub` commands that use it."""

    def __init__(self, data_dir: Path) -> None:
        self.data_dir = data_dir
        self.log = data_dir / "up.output"
        # The certificates and proxies with which this machine reaches the registries, for tests that install a real IDE.
        ways = {
            name: value for name, value in os.environ.items() if "CERT" in name or name.lower().endswith("_proxy")
        }
        if "PYTHONPATH" in os.environ:  # a planted bug is in another copy of the source
            ways["PYTHONPATH"] = os.environ["PYTHONPATH"]
        self.environment = {
            **ways,
            "PATH": os.environ["PATH"],
            "HOME": str(data_dir),
            "CODEHUB_DATA_DIR": str(data_dir),
            "CODEHUB_RUNTIME": "process",
        }
        self.url = ""
        self.process: subprocess.Popen[bytes] | None = None
        self.everything: set[psutil.Process] = set()

    def with_tiny_ide(self) -> None:
        """Make the tiny IDE the default profile. The profile "licensed" needs a file in its home to start."""
        run = ["python3", "-u", "-c", tiny_ide.SOURCE, "{socket}", "{id}"]
        check = 'test -e "$HOME/licence" || { echo "the licence is missing"; exit 1; }; exec "$@"'
        profiles = self.data_dir / "profiles.toml"
        profiles.write_text(
            f'[profiles.tiny]\ncommand = {json.dumps(run)}\nhealth_path = "/healthz"\n'
            f'[profiles.licensed]\ncommand = {json.dumps(["sh", "-c", check, "sh", *run])}\nhealth_path = "/healthz"\n'
        )
        self.environment |= {"CODEHUB_PROFILES_FILE": str(profiles), "CODEHUB_DEFAULT_PROFILE": "tiny"}

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "codehub.cli.main", *arguments]

    def run(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(*arguments),
            env={**self.environment, **environment},
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )

    def up(self) -> None:
        put_tools(self.data_dir)  # otherwise each CodeHub would fetch and compile them
        self.log.write_bytes(b"")
        with self.log.open("ab") as output:
            self.process = subprocess.Popen(
                self.command("up"), env=self.environment, stdout=output, stderr=output, stdin=subprocess.DEVNULL
            )
        self.wait(lambda: "CodeHub is ready" in self.output() or self._ended())
        assert "CodeHub is ready" in self.output(), self.output()
        me = psutil.Process(self.process.pid)
        self.everything |= {me, *me.children(recursive=True)}
        printed = re.search(r"CodeHub is ready: +(\S+)", self.output())
        assert printed is not None, self.output()
        self.url = printed.group(1)  # as a person reads it; `codehub env` would cost a third of a second of CPU

    def end(self) -> None:
        """Send Ctrl-C: CodeHub ends, its workspaces continue."""
        assert self.process is not None
        self.process.send_signal(signal.SIGINT)
        self.process.wait(TIMEOUT_S)

    def _ended(self) -> bool:
        return self.process is not None and self.process.poll() is not None

    def output(self) -> str:
        return self.log.read_text(errors="replace")

    def wait(self, done: Callable[[], bool]) -> None:
        deadline = time.monotonic() + TIMEOUT_S
        while not done():
            assert time.monotonic() < deadline, self.output()
            time.sleep(0.05)

    def kill(self) -> None:
        """Send SIGKILL to all processes at once, like a power cut."""
        assert self.process is not None
        me = psutil.Process(self.process.pid)
        family = {me, *me.children(recursive=True)}
        for process in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        self.process.wait()
        psutil.wait_procs(family, timeout=60)

    def processes(self, part: str) -> list[psutil.Process]:
        """Return the running processes of "api", "proxy", "coordinator", "postgres" or "valkey"."""
        assert self.process is not None
        pattern = {"postgres": r"/postgres -D", "valkey": r"valkey\.conf|valkey-server"}.get(part, rf"serve {part}\b")
        found = []
        with contextlib.suppress(psutil.NoSuchProcess):
            for child in psutil.Process(self.process.pid).children():
                with contextlib.suppress(psutil.NoSuchProcess):
                    if re.search(pattern, " ".join(child.cmdline())):
                        found.append(child)
        self.everything.update(found)
        return found

    def value(self, name: str) -> str:
        return dict(line.split("=", 1) for line in self.run("env").stdout.splitlines())[name]

    def password(self) -> str:
        """Return the generated password."""
        return (self.data_dir / "admin-password").read_text().strip()

    @contextlib.contextmanager
    def client(self, username: str = "admin", password: str = "") -> Iterator[httpx.Client]:
        """Yield a signed-in client, by default as the admin."""
        password = password or self.environment.get("CODEHUB_ADMIN_PASSWORD") or self.password()
        with httpx.Client(base_url=self.url, timeout=60, trust_env=False) as client:
            answer = client.post("/api/v1/login", json={"username": username, "password": password})
            assert answer.status_code == 200, answer.text
            client.headers["X-CodeHub-Session-Key"] = answer.json()["session_key"]
            yield client

    def home_of(self, name: str) -> Path:
        """Return the path of the home of the workspace with this name."""
        with self.client() as client:
            items = client.get("/api/v1/workspaces", params={"per_page": 200}).json()["items"]
        (workspace_id,) = [item["id"] for item in items if item["name"] == name]
        (found,) = (self.data_dir / "homes").glob(f"users/*/workspaces/{workspace_id}/home/files")
        return found

    def lose_home(self, name: str) -> None:
        """Remove a home, as if a user had deleted the wrong directory."""
        shutil.rmtree(self.home_of(name).parent)

    def clean(self) -> None:
        """Remove all processes and files. May be called again."""
        if not self.data_dir.exists():
            return
        if (self.data_dir / "run").exists():  # otherwise nothing ever ran here, and `down` costs half a second of CPU
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.run("down")  # workspaces outlive whatever was killed
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(60)
        for process in self.everything:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        shutil.rmtree(self.data_dir, ignore_errors=True)


@contextlib.contextmanager
def fresh_stack() -> Iterator[Stack]:
    """Yield a stack that is not started yet, and clean up everything that was started on it."""
    made = Stack(service_dir())
    try:
        yield made
    finally:
        made.clean()
