"""Backup and restore of a whole installation by the steps of docs/operating.md, into a data directory that never saw it."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from codehub.adapters.embedded.account import server_account
from codehub.adapters.embedded.binaries import postgres_bin
from codehub.adapters.embedded.postgres import EmbeddedPostgres
from codehub.adapters.postgres.migrate import migrate
from codehub.adapters.postgres.pool import Database
from testing.dashboard import ADMIN, ARCHIVED, PASSWORD, DashboardServer, Stage
from testing.services import service_dir


@pytest.fixture
def place() -> Iterator[Path]:
    made = service_dir()
    yield made
    shutil.rmtree(made, ignore_errors=True)


def _run(program: str, *words: str) -> None:
    path = postgres_bin(Path("/nonexistent"), server_account()) / program
    done = subprocess.run([str(path), *words], capture_output=True, text=True, timeout=120, env={"PATH": os.defpath})
    assert done.returncode == 0, done.stderr


def _started(data_dir: Path) -> EmbeddedPostgres:
    data_dir.mkdir(mode=0o711)
    server = EmbeddedPostgres(data_dir)
    server.start()
    return server


async def test_an_installation_comes_back_whole_on_another_machine(place: Path) -> None:
    backup = place / "backup"
    backup.mkdir()
    old = _started(place / "old")
    try:
        workspace_id = await _live_in(old.url("postgres"), place / "old")
        _run("pg_dump", "--format=custom", f"--file={backup / 'codehub.dump'}", old.url("postgres"))
        subprocess.run(["cp", "-a", place / "old/homes", place / "old/archives", backup], check=True)
    finally:
        old.stop()
    shutil.rmtree(place / "old")

    new = _started(place / "new")
    try:
        url = new.url("postgres")
        _run("pg_restore", "--clean", "--if-exists", "--no-owner", f"--dbname={url}", str(backup / "codehub.dump"))
        subprocess.run(["cp", "-a", backup / "homes", backup / "archives", place / "new"], check=True)
        assert await migrate(url) == [], "it is as it was"
        await _is_back(url, place / "new", workspace_id)
    finally:
        new.stop()


async def _live_in(url: str, data_dir: Path) -> str:
    await migrate(url)
    async with Database(url) as database:
        server = DashboardServer(database)
        await server.start()
        await server.stop()
        workspace_id = await Stage(database).add(
            "thesis", **ARCHIVED, archive_key="op/home.tar.zst", memo="chapter 3"
        )
        await Stage(database).add("notes")
    home = data_dir / "homes" / "users" / "notes"
    home.mkdir(parents=True)
    (home / "todo.txt").write_text("buy milk\n")
    (home / "link").symlink_to("todo.txt")
    (home / "todo.txt").chmod(0o640)
    archive = data_dir / "archives" / workspace_id / "op"
    archive.mkdir(parents=True)
    (archive / "home.tar.zst").write_bytes(b"\x28\xb5\x2f\xfd" + bytes(1000))
    return workspace_id


async def _is_back(url: str, data_dir: Path, workspace_id: str) -> None:
    async with Database(url) as database:
        server = DashboardServer(database)
        await server.start()
        try:
            async with httpx.AsyncClient(base_url=f"{server.url}/api/v1/", timeout=90) as client:
                signed_in = await client.post("login", json={"username": ADMIN, "password": PASSWORD})
                assert signed_in.status_code == 200
                found = {item["name"]: item for item in (await client.get("workspaces")).json()["items"]}
        finally:
            await server.stop()
    assert set(found) == {"thesis", "notes"}
    thesis = found["thesis"]
    assert (thesis["id"], thesis["phase"], thesis["memo"]) == (workspace_id, "ARCHIVED", "chapter 3")
    todo = data_dir / "homes/users/notes/todo.txt"
    assert (todo.read_text(), todo.stat().st_mode & 0o777) == ("buy milk\n", 0o640)
    assert (data_dir / "homes/users/notes/link").is_symlink()
    assert (data_dir / "archives" / workspace_id / thesis["archive_key"]).stat().st_size == 1004
