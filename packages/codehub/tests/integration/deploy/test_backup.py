"""Backup and restore of a whole installation by both ways of docs/backup.md, with everything running afterwards."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from codehub.adapters.embedded.account import server_account
from codehub.adapters.embedded.binaries import postgres_bin
from codehub.adapters.embedded.postgres import EmbeddedPostgres
from testing.codehub.full_stack import Stack, fresh_stack
from testing.codehub.services import service_dir


@pytest.fixture
def machines() -> Iterator[ExitStack]:
    """Whatever is entered here is gone afterwards."""
    with ExitStack() as stack:
        yield stack


def test_an_installation_comes_back_whole_on_another_machine_and_goes_on(machines: ExitStack) -> None:
    backup = service_dir()
    machines.callback(shutil.rmtree, backup, ignore_errors=True)
    old = machines.enter_context(fresh_stack())
    old.with_tiny_ide()
    old.up()
    _live_in(old)
    # Of a server outside: the dump first, the files after it, while everything runs.
    _program("pg_dump", "--format=custom", f"--file={backup / 'codehub.dump'}", old.value("CODEHUB_DATABASE_URL"))
    subprocess.run(["cp", "-a", old.data_dir / "homes", old.data_dir / "archives", backup], check=True)
    # Of the embedded default: CodeHub stopped, the whole data directory.
    old.end()
    subprocess.run(["cp", "-a", old.data_dir, backup / "whole"], check=True)
    old.clean()

    whole = machines.enter_context(fresh_stack())
    shutil.rmtree(whole.data_dir)
    subprocess.run(["cp", "-a", backup / "whole", whole.data_dir], check=True)
    whole.with_tiny_ide()
    whole.up()
    _is_back(whole)
    whole.clean()

    server = _outside(machines)
    dumped = machines.enter_context(fresh_stack())
    dumped.with_tiny_ide()
    dumped.environment["CODEHUB_DATABASE_URL"] = server.url("postgres")
    dumped.environment["CODEHUB_ADMIN_PASSWORD"] = old.environment["CODEHUB_ADMIN_PASSWORD"]
    _program("pg_restore", "--no-owner", f"--dbname={server.url('postgres')}", str(backup / "codehub.dump"))
    subprocess.run(["cp", "-a", backup / "homes", backup / "archives", dumped.data_dir], check=True)
    dumped.up()
    _is_back(dumped)
    assert dumped.run("doctor").returncode == 0


def _live_in(stack: Stack) -> None:
    """One workspace that runs, one that is archived, each with something in it."""
    stack.environment["CODEHUB_ADMIN_PASSWORD"] = stack.password()
    with stack.client() as client:
        for name in ("running", "archived"):
            made = client.post("/api/v1/workspaces", json={"name": name, "memo": f"{name}, chapter 3"})
            path = f"/api/v1/workspaces/{made.json()['id']}"
            stack.wait(lambda path=path: client.get(path).json()["status"] == "RUNNING")  # type: ignore[misc]
            note = stack.home_of(name) / "note"
            note.write_text(f"written in {name}\n")
            note.chmod(0o640)
        assert client.post(f"{path}:archive").status_code == 202
        stack.wait(lambda: client.get(path).json()["phase"] == "ARCHIVED")


def _is_back(stack: Stack) -> None:
    """Everything is there, what ran runs again, and what was archived starts with its files."""
    with stack.client() as client:
        found = {item["name"]: item for item in client.get("/api/v1/workspaces").json()["items"]}
        assert {name: item["memo"] for name, item in found.items()} == {
            "running": "running, chapter 3",
            "archived": "archived, chapter 3",
        }
        assert found["archived"]["phase"] == "ARCHIVED"
        assert client.post(f"/api/v1/workspaces/{found['archived']['id']}:start").status_code == 202
        for name, item in found.items():
            path = f"/api/v1/workspaces/{item['id']}"
            stack.wait(lambda path=path: client.get(path).json()["status"] == "RUNNING")  # type: ignore[misc]
            note = stack.home_of(name) / "note"
            assert (note.read_text(), note.stat().st_mode & 0o777) == (f"written in {name}\n", 0o640)


def _outside(machines: ExitStack) -> EmbeddedPostgres:
    place = service_dir()
    machines.callback(shutil.rmtree, place, ignore_errors=True)
    server = EmbeddedPostgres(place)
    machines.callback(server.stop)
    server.start()
    return server


def _program(name: str, *words: str) -> None:
    path: Path = postgres_bin(Path("/nonexistent"), server_account()) / name
    done = subprocess.run([str(path), *words], capture_output=True, text=True, timeout=120, env={"PATH": os.defpath})
    assert done.returncode == 0, done.stderr
