"""What `doctor`, `migrate --check` and `down` exit with and stop, run as a script would run them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from testing.codehub.full_stack import Stack, fresh_stack


def codehub(data_dir: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "codehub.cli.main", *words],
        env={
            "PATH": os.environ["PATH"],
            "HOME": str(data_dir),
            "CODEHUB_DATA_DIR": str(data_dir),
            "CODEHUB_RUNTIME": "process",
            **environment,
        },
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_doctor_fails_when_it_finds_a_problem(tmp_path: Path) -> None:
    at = {"CODEHUB_DATABASE_URL": "postgresql://nobody@127.0.0.1:9/none"}
    found = codehub(tmp_path, "doctor", "--no-boundaries", **at)
    assert "PROBLEM database" in found.stdout
    assert "boundary" not in found.stdout
    assert found.returncode == 1, found


def test_migrate_check_says_by_its_exit_code_whether_anything_is_to_be_done(
    tmp_path: Path, empty_database_url: str
) -> None:
    at = {"CODEHUB_DATABASE_URL": empty_database_url}
    assert codehub(tmp_path, "migrate", "--check", **at).returncode == 1
    assert codehub(tmp_path, "migrate", **at).returncode == 0
    assert codehub(tmp_path, "migrate", "--check", **at).returncode == 0


@pytest.fixture
def stack() -> Iterator[Stack]:
    with fresh_stack() as made:
        yield made


def test_down_stops_the_servers_that_a_killed_codehub_left_behind(stack: Stack) -> None:
    stack.up()
    servers = [*stack.processes("postgres"), *stack.processes("valkey")]
    assert len(servers) == 2
    assert stack.process is not None
    stack.process.kill()
    stack.process.wait(60)
    assert all(server.is_running() for server in servers)
    down = stack.run("down")
    assert (down.returncode, "PostgreSQL and Valkey" in down.stdout) == (0, True), down
    _, alive = psutil.wait_procs(servers, timeout=60)
    assert not alive
    assert "no CodeHub is running in" in stack.run("down").stdout
