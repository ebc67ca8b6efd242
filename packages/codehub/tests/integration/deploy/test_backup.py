"""Backup and restore of a whole installation by both ways of docs/backup.md, with everything running afterwards."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack

import psycopg
import pytest

from codehub.adapters.embedded.postgres import EmbeddedPostgres
from codehub.wiring import new_id
from testing.codehub.full_stack import Stack, fresh_stack
from testing.codehub.services import service_dir


@pytest.fixture
def machines() -> Iterator[ExitStack]:
    """Whatever is entered here is gone afterwards."""
    with ExitStack() as stack:
        yield stack


def test_an_installation_comes_back_whole_on_another_machine_and_goes_on(machines: ExitStack) -> None:
    place = service_dir()
    machines.callback(shutil.rmtree, place, ignore_errors=True)
    saved = place / "saved"
    old = machines.enter_context(fresh_stack())
    old.with_tiny_ide()
    old.up()
    _live_in(old)
    # While everything runs.
    done = old.run("backup", str(saved))
    assert done.returncode == 0, done.stderr
    assert old.run("backup", str(saved)).returncode == 6, "a backup never replaces another"
    assert old.password() not in (saved / "codehub-backup.json").read_text()

    # A server outside takes it as it is.
    server = _outside(machines)
    outside = _another(machines, old)
    outside.environment["CODEHUB_DATABASE_URL"] = server.url("postgres")
    assert outside.run("restore", str(saved)).returncode == 0
    outside.up()
    _is_back(outside)
    doctor = outside.run("doctor", "--no-boundaries")
    assert doctor.returncode == 0, doctor.stdout
    assert outside.run("restore", str(saved)).returncode == 6, "what runs is never overwritten"
    outside.clean()

    # What the backup would hold, had the running one been archived between the snapshot and the copies.
    with old.client() as client:
        (row,) = [item for item in client.get("/api/v1/workspaces").json()["items"] if item["name"] == "running"]
        # Its copy on the same machine had the same user and may have disturbed it: then it is started again first.
        old.wait(lambda: client.post(f"/api/v1/workspaces/{row['id']}:archive").status_code == 202)
        old.wait(lambda: client.get(f"/api/v1/workspaces/{row['id']}").json()["phase"] == "ARCHIVED")
    (home,) = (saved / "homes").glob(f"users/*/workspaces/{row['id']}")
    shutil.rmtree(home)
    subprocess.run(["cp", "-a", old.data_dir / "archives" / row["id"], saved / "archives"], check=True)
    manifest = json.loads((saved / "codehub-backup.json").read_text())
    (data,) = (saved / "archives" / row["id"]).glob("*/home.tar.zst")
    manifest["stand_ins"] = {row["id"]: str(data.relative_to(saved / "archives"))}
    (saved / "codehub-backup.json").write_text(json.dumps(manifest))
    old.end()
    old.clean()
    embedded = _another(machines, old)
    restored = embedded.run("restore", str(saved))
    assert (restored.returncode, "continue from their archives: 1" in restored.stdout) == (0, True), restored
    embedded.up()
    _is_back(embedded)


def test_an_archive_without_its_row_is_found_and_recovered_from(machines: ExitStack) -> None:
    """What an older, hand-made backup may leave: the home is gone, and its archive is in no row."""
    stack = machines.enter_context(fresh_stack())
    stack.with_tiny_ide()
    stack.up()
    _live_in(stack)
    with stack.client() as client:
        (row,) = [item for item in client.get("/api/v1/workspaces").json()["items"] if item["name"] == "running"]
        path = f"/api/v1/workspaces/{row['id']}"
        assert client.post(f"{path}:archive").status_code == 202
        stack.wait(lambda: client.get(path).json()["phase"] == "ARCHIVED")
        key = client.get(path).json()["archive_key"]
        with psycopg.connect(stack.value("CODEHUB_DATABASE_URL"), autocommit=True) as connection:
            connection.execute("DELETE FROM workspace_archives WHERE workspace_id = %s", [row["id"]])
            connection.execute(
                "UPDATE workspaces SET archive_key = NULL, archive_op_id = NULL,"
                ' home_ctx = \'{"incarnation": "of-before"}\' WHERE id = %s',
                [row["id"]],
            )
        stack.wait(lambda: client.get(path).json()["error_reason"] == "DataLost")
        assert [one["archive_key"] for one in client.get(f"{path}/archives").json()["items"]] == [key]
        listed = stack.run("doctor", "--archives").stdout
        assert f"{key} of running is not among its recorded archives" in listed, listed
        foreign = key.replace(row["id"], new_id())
        refused = client.post(f"{path}:recover", json={"archive_key": foreign})
        assert refused.status_code == 400, refused.text
        assert client.post(f"{path}:recover", json={"archive_key": key}).status_code == 202
        assert client.post(f"{path}:start").status_code in (202, 409)
        stack.wait(lambda: client.get(path).json()["status"] == "RUNNING")
        assert (stack.home_of("running") / "note").read_text() == "written in running\n"


def _another(machines: ExitStack, like: Stack) -> Stack:
    made = machines.enter_context(fresh_stack())
    made.with_tiny_ide()
    made.environment["CODEHUB_ADMIN_PASSWORD"] = like.environment["CODEHUB_ADMIN_PASSWORD"]
    return made


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
