"""What `doctor`, `migrate --check` and `down` exit with and stop, run as a script would run them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import psycopg
import pytest

from codehub.adapters.postgres.control_store import PostgresControlStore
from codehub.adapters.postgres.pool import Database
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
    assert (found.returncode, found.stderr) == (1, ""), found


def test_doctor_names_a_database_that_takes_no_writes(tmp_path: Path, database_url: str) -> None:
    at = {"CODEHUB_DATABASE_URL": database_url}
    assert "read-only" not in codehub(tmp_path, "doctor", "--no-boundaries", **at).stdout
    name = database_url.rpartition("/")[2].partition("?")[0]
    with psycopg.connect(database_url, autocommit=True) as admin:
        admin.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    found = codehub(tmp_path, "doctor", "--no-boundaries", **at)
    assert "PROBLEM database        it is read-only" in found.stdout
    assert (found.returncode, found.stderr) == (1, ""), found


async def test_doctor_names_a_coordinator_that_refuses_to_lead(
    tmp_path: Path, database: Database, database_url: str
) -> None:
    at = {"CODEHUB_DATABASE_URL": database_url}
    found = codehub(tmp_path, "doctor", "--no-boundaries", **at).stdout
    assert "warning coordinator     none leads" in found
    await PostgresControlStore(database).note_refusal("node-b", "its homes are elsewhere")
    refused = codehub(tmp_path, "doctor", "--no-boundaries", **at)
    assert "PROBLEM coordinator     node-b refuses to lead: its homes are elsewhere" in refused.stdout
    assert refused.returncode == 1


@pytest.mark.parametrize("part", [("up",), ("serve", "api"), ("serve", "proxy"), ("serve", "coordinator")])
def test_a_docker_engine_of_another_machine_is_refused_at_start(
    tmp_path: Path, empty_database_url: str, part: tuple[str, ...]
) -> None:
    at = {"CODEHUB_DATABASE_URL": empty_database_url, "CODEHUB_RUNTIME": "docker", "DOCKER_HOST": "tcp://127.0.0.1:9"}
    binds = {"CODEHUB_API_BIND": "127.0.0.1:0", "CODEHUB_PROXY_BIND": "127.0.0.1:0"}
    refused = codehub(tmp_path / "data", *part, **at, **binds)
    assert (refused.returncode, "Set DOCKER_HOST to the engine's socket" in refused.stderr) == (1, True), refused
    assert not (tmp_path / "data").exists()


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


def test_doctor_names_and_down_stops_the_servers_that_a_killed_codehub_left_behind(stack: Stack) -> None:
    stack.up()
    servers = [*stack.processes("postgres"), *stack.processes("valkey")]
    assert len(servers) == 2
    assert stack.process is not None
    stack.process.kill()
    stack.process.wait(60)
    assert all(server.is_running() for server in servers)
    doctor = stack.run("doctor", "--no-boundaries").stdout
    for server, process in zip(("PostgreSQL", "Valkey"), servers, strict=True):
        assert f"embedded {server} runs (pid {process.pid}), left behind by a CodeHub that was killed" in doctor
    assert "`codehub down` stops it" in doctor
    down = stack.run("down")
    assert (down.returncode, "PostgreSQL and Valkey" in down.stdout) == (0, True), down
    _, alive = psutil.wait_procs(servers, timeout=60)
    assert not alive
    assert "no CodeHub is running in" in stack.run("down").stdout
    assert "embedded, not running" in stack.run("doctor", "--no-boundaries").stdout
