"""`codehub up` as a user runs it: ready, used, killed with all it started, and up again with everything there."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import psutil
import psycopg
import pytest

from testing import tiny_ide
from testing.services import service_dir

PATIENCE_S = 180.0


class Stack:
    """One data directory and whatever `codehub` commands are run on it."""

    def __init__(self, data_dir: Path) -> None:
        self.data_dir = data_dir
        self.log = data_dir / "up.output"
        self.environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(data_dir),
            "CODEHUB_DATA_DIR": str(data_dir),
            "CODEHUB_RUNTIME": "process",
        }
        self.process: subprocess.Popen[bytes] | None = None
        self.everything: set[psutil.Process] = set()

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "codehub.cli.main", *arguments]

    def run(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(*arguments),
            env={**self.environment, **environment},
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )

    def up(self) -> None:
        self.log.write_bytes(b"")
        with self.log.open("ab") as output:
            self.process = subprocess.Popen(
                self.command("up"), env=self.environment, stdout=output, stderr=output, stdin=subprocess.DEVNULL
            )
        self.wait(lambda: "CodeHub is ready" in self.said() or self._ended())
        assert "CodeHub is ready" in self.said(), self.said()
        me = psutil.Process(self.process.pid)
        self.everything |= {me, *me.children(recursive=True)}

    def _ended(self) -> bool:
        return self.process is not None and self.process.poll() is not None

    def said(self) -> str:
        return self.log.read_text(errors="replace")

    def wait(self, done: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not done():
            assert time.monotonic() < deadline, self.said()
            time.sleep(0.05)

    def kill(self) -> None:
        """SIGKILL for all of it at once, as a power cut would."""
        assert self.process is not None
        me = psutil.Process(self.process.pid)
        family = {me, *me.children(recursive=True)}
        for process in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        self.process.wait()
        psutil.wait_procs(family, timeout=60)

    def value(self, name: str) -> str:
        return dict(line.split("=", 1) for line in self.run("env").stdout.splitlines())[name]

    @contextlib.contextmanager
    def client(self) -> Iterator[httpx.Client]:
        """Signed in as the admin."""
        password = (self.data_dir / "admin-password").read_text().strip()
        with httpx.Client(base_url=self.value("CODEHUB_PUBLIC_BASE_URL"), timeout=60, trust_env=False) as client:
            answer = client.post("/api/v1/login", json={"username": "admin", "password": password})
            assert answer.status_code == 200, answer.text
            yield client

    def clean(self) -> None:
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


@pytest.fixture
def stack() -> Iterator[Stack]:
    made = Stack(service_dir())
    yield made
    made.clean()


def test_codehub_is_used_killed_and_up_again_with_everything_there(stack: Stack) -> None:
    stack.up()
    password = (stack.data_dir / "admin-password").read_text().strip()
    assert password in stack.said()
    with stack.client() as client:
        made = client.post("/api/v1/workspaces", json={"name": "kept", "start": False})
        assert made.status_code == 201, made.text
        path = f"/api/v1/workspaces/{made.json()['id']}"
        stack.wait(lambda: client.get(path).json()["phase"] == "ARCHIVED")
        assert client.patch(path, json={"memo": "still here"}).status_code == 200
        assert client.post(f"{path}:stop").status_code == 409

    doctor = stack.run("doctor")
    assert doctor.returncode == 0, doctor.stdout
    assert "PROBLEM" not in doctor.stdout
    second = stack.run("up")
    assert second.returncode == 6
    assert "running on" in second.stderr

    stack.kill()
    stack.up()
    assert password not in stack.said()
    with stack.client() as client:
        kept = client.get(path).json()
        assert (kept["name"], kept["memo"], kept["phase"], kept["status"]) == (
            "kept",
            "still here",
            "ARCHIVED",
            "CREATED",
        )
        with psycopg.connect(stack.value("CODEHUB_DATABASE_URL")) as connection:
            assert connection.execute("SELECT count(*) FROM workspaces").fetchone() == (1,)

    down = stack.run("down")
    assert down.returncode == 0, down.stderr
    assert stack.process is not None
    stack.process.wait(60)
    _, alive = psutil.wait_procs(stack.everything, timeout=60)
    assert not alive
    assert "no CodeHub runs on" in stack.run("down").stdout


def test_a_workspace_and_what_was_written_in_it_live_through_a_kill_of_everything_and_an_archive(
    stack: Stack,
) -> None:
    profiles = stack.data_dir / "profiles.toml"
    command = json.dumps(["python3", "-u", "-c", tiny_ide.SOURCE, "{socket}", "{id}"])
    profiles.write_text(f'[profiles.tiny]\ncommand = {command}\nhealth_path = "/healthz"\n')
    stack.environment |= {"CODEHUB_PROFILES_FILE": str(profiles), "CODEHUB_DEFAULT_PROFILE": "tiny"}
    stack.up()
    with stack.client() as client:
        token = client.post("/api/v1/tokens", json={"name": "test"}).json()["token"]
        made = client.post("/api/v1/workspaces", json={"name": "alive"})
        assert made.status_code == 201, made.text
        path = f"/api/v1/workspaces/{made.json()['id']}"
        stack.wait(lambda: client.get(path).json()["status"] == "RUNNING")

    def run_inside(text: str) -> str:
        port = stack.value("CODEHUB_PROXY_BIND").rpartition(":")[2]
        answer = httpx.post(
            f"http://127.0.0.1:{port}/w/{made.json()['id']}/run",
            content=text,
            headers={"Authorization": f"Bearer {token}", "Host": f"localhost:{port}"},
            timeout=60,
            trust_env=False,
        )
        assert answer.status_code == 200, answer.text
        return answer.text

    run_inside("echo 'written inside' > note; chmod 640 note")
    stack.kill()
    stack.up()
    assert run_inside("cat note") == "written inside\n"
    with stack.client() as client:
        assert client.get(path).json()["status"] == "RUNNING"
        assert client.post(f"{path}:archive").status_code == 202
        stack.wait(lambda: client.get(path).json()["phase"] == "ARCHIVED")
        assert client.post(f"{path}:start").status_code == 202
        stack.wait(lambda: client.get(path).json()["status"] == "RUNNING")
    assert run_inside("cat note; stat -c %a note") == "written inside\n640\n"
    assert "stopped 1 workspace" in stack.run("down").stdout


def test_a_part_that_dies_is_started_again(stack: Stack) -> None:
    stack.up()
    assert stack.process is not None

    def parts() -> dict[str, psutil.Process]:
        found = {}
        for child in psutil.Process(stack.process.pid).children():
            with contextlib.suppress(psutil.NoSuchProcess):
                line = " ".join(child.cmdline())
                if match := re.search(r"serve (\w+)", line):
                    found[match[1]] = child
        return found

    victim = parts()["api"]
    victim.kill()
    stack.wait(lambda: parts().get("api") not in (None, victim))
    stack.everything |= set(parts().values())
    with httpx.Client(base_url=stack.value("CODEHUB_PUBLIC_BASE_URL"), timeout=60, trust_env=False) as client:
        assert client.get("/health").status_code == 200


@pytest.mark.parametrize(
    ("environment", "code", "complaint"),
    [
        ({"CODEHUB_API_BIND": "nonsense"}, 2, "CODEHUB_API_BIND='nonsense'"),
        ({"CODEHUB_DATABASE_URL": "mysql://x"}, 2, "CODEHUB_DATABASE_URL"),
        ({"CODEHUB_DATABASE_URL": "postgresql://nobody@127.0.0.1:9/none"}, 7, "database"),
        ({"CODEHUB_DATA_DIR": "/proc/nowhere"}, 2, "CODEHUB_DATA_DIR=/proc/nowhere"),
        ({"TTL_STANDBY_SECONDS": "5"}, 2, "ACTIVITY_FLUSH_INTERVAL"),
    ],
)
def test_what_cannot_work_is_refused_at_start_with_the_variable_named(
    stack: Stack, environment: dict[str, str], code: int, complaint: str
) -> None:
    refused = stack.run("up", **environment)
    assert refused.returncode == code, refused.stderr
    assert complaint in refused.stderr
    assert "Traceback" not in refused.stderr


def test_a_data_directory_of_a_newer_codehub_is_refused(stack: Stack) -> None:
    (stack.data_dir / "layout").write_text("99\n")
    refused = stack.run("up")
    assert refused.returncode == 2
    assert "newer CodeHub" in refused.stderr
    assert not (stack.data_dir / "postgres").exists()


def test_a_port_that_was_asked_for_and_is_taken_is_an_error_naming_its_holder(stack: Stack) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        bind = f"127.0.0.1:{holder.getsockname()[1]}"
        refused = stack.run("up", CODEHUB_API_BIND=bind)
    assert refused.returncode == 6
    assert bind in refused.stderr
    assert f"pid {os.getpid()}" in refused.stderr
