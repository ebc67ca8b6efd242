"""`codehub backup` and `codehub restore` that are interrupted: nothing is lost, and repeating the command completes it."""

from __future__ import annotations

import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from testing.codehub.full_stack import TIMEOUT_S, Stack, fresh_stack

_LARGE = 2 << 20
# In their order. A copy that ended half-way is made from a whole one.
_RESTORE_STEPS = (
    "restore:write_private",
    "restore_files:copy_tree",
    "restore_files:files.stream",
    "restore:pg_programs.load",
    "restore:settle_rows",
    "restore:sync_dir",
)
_BACKUP_STEPS = ("copy_tree", "pg_programs.dump", "_copy_archives", "Manifest.write")


@pytest.fixture(scope="module")
def old() -> Iterator[Stack]:
    """An installation with a workspace that is asleep and an archived one."""
    with fresh_stack() as stack:
        stack.with_tiny_ide()
        stack.up()
        stack.environment["CODEHUB_ADMIN_PASSWORD"] = stack.password()
        with stack.client() as client:
            for name, verb, phase in (("asleep", "stop", "STANDBY"), ("archived", "archive", "ARCHIVED")):
                made = client.post("/api/v1/workspaces", json={"name": name}).json()
                path = f"/api/v1/workspaces/{made['id']}"
                stack.wait(lambda path=path: client.get(path).json()["status"] == "RUNNING")  # type: ignore[misc]
                home = stack.home_of(name)
                (home / "note").write_text(f"written in {name}\n")
                (home / "large").write_bytes(b"x" * _LARGE)
                assert client.post(f"{path}:{verb}").status_code == 202
                stack.wait(lambda path=path, phase=phase: client.get(path).json()["phase"] == phase)  # type: ignore[misc]
        yield stack


def test_a_restore_that_is_killed_at_any_step_is_repeated_and_completes(old: Stack, tmp_path: Path) -> None:
    saved = tmp_path / "saved"
    assert old.run("backup", str(saved)).returncode == 0
    with fresh_stack() as new:
        new.with_tiny_ide()
        new.environment["CODEHUB_ADMIN_PASSWORD"] = old.environment["CODEHUB_ADMIN_PASSWORD"]
        for step in _RESTORE_STEPS:
            _killed(new, f"codehub.cli.{step}", 1, "restore", str(saved))
            if step == "restore_files:files.stream":
                (half,) = (new.data_dir / "homes").glob("users/*/workspaces/*/home/files/note")
                half.unlink()
        refused = new.run("up")
        assert refused.returncode == 6, refused.stderr
        assert f"repeat it first, with `codehub restore {saved}`" in refused.stderr
        other = tmp_path / "other"
        other.mkdir()
        (other / "codehub-backup.json").write_text("{}\n")
        another = new.run("restore", str(other))
        assert (another.returncode, "an earlier restore" in another.stderr) == (6, True), another.stderr
        repeated = new.run("restore", str(saved))
        assert repeated.returncode == 0, repeated.stderr
        assert (new.data_dir / "secrets.key").read_bytes() == (old.data_dir / "secrets.key").read_bytes()
        assert new.run("restore", str(saved)).returncode == 6, "a complete one is not repeated"
        new.up()
        _everything_is_there(new)


def test_a_backup_that_is_killed_at_any_step_is_not_taken_for_a_whole_one(old: Stack, tmp_path: Path) -> None:
    with fresh_stack() as new:
        for number, step in enumerate(_BACKUP_STEPS):
            saved = tmp_path / f"{number}"
            _killed(old, f"codehub.cli.backup:{step}", 1, "backup", str(saved))
            again = old.run("backup", str(saved))
            assert (again.returncode, "was not completed: remove it" in again.stderr) == (6, True), again.stderr
            refused = new.run("restore", str(saved))
            assert (refused.returncode, "not a complete backup" in refused.stderr) == (2, True), refused.stderr


def test_a_file_that_cannot_be_written_makes_the_backup_incomplete(old: Stack, tmp_path: Path) -> None:
    saved = tmp_path / "saved"
    done = subprocess.run(
        old.command("backup", str(saved)),
        env=old.environment,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (_LARGE // 2, _LARGE // 2)),
    )
    assert done.returncode == 8, (done.stdout, done.stderr)
    assert "files/large: File too large" in done.stderr
    assert not list((saved / "homes").glob("users/*/workspaces/*/home/files/large")), "no part of a file is kept"
    with fresh_stack() as new:
        restored = new.run("restore", str(saved))
        assert (restored.returncode, "lost: asleep" in restored.stderr) == (8, True), restored
        # A running CodeHub keeps the error, and replaces the home by nothing else.
        new.with_tiny_ide()
        new.environment["CODEHUB_ADMIN_PASSWORD"] = old.environment["CODEHUB_ADMIN_PASSWORD"]
        new.up()
        with new.client() as client:
            (lost,) = [one for one in client.get("/api/v1/workspaces").json()["items"] if one["name"] == "asleep"]
            path = f"/api/v1/workspaces/{lost['id']}"
            refused = client.post(f"{path}:start")
            assert (lost["error_reason"], refused.status_code) == ("DataLost", 409), refused.text
            assert client.post(f"{path}:recover", json={"archive_key": None}).status_code == 202
            assert client.post(f"{path}:start").status_code in (202, 409)
            new.wait(lambda: client.get(path).json()["status"] == "RUNNING")
        (kept,) = new.data_dir.glob("homes/users/*/workspaces/*/.damaged-0/files/note")
        assert kept.read_text() == "written in asleep\n", "an administrator can still get at the incomplete home"


def test_a_database_that_cannot_be_written_makes_the_backup_fail(old: Stack, tmp_path: Path) -> None:
    saved = tmp_path / "saved"
    done = subprocess.run(
        old.command("backup", str(saved)),
        env=old.environment,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1024, 1024)),
    )
    assert (done.returncode, "pg_dump failed" in done.stderr) == (1, True), (done.stdout, done.stderr)
    assert not (saved / "codehub-backup.json").exists()


def _killed(stack: Stack, function: str, nth: int, *arguments: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "testing.codehub.killed_commands", function, str(nth), *arguments],
        env=stack.environment,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL, (function, done.stdout, done.stderr)


def _everything_is_there(stack: Stack) -> None:
    with stack.client() as client:
        for item in client.get("/api/v1/workspaces").json()["items"]:
            path = f"/api/v1/workspaces/{item['id']}"
            assert client.post(f"{path}:start").status_code == 202
            stack.wait(lambda path=path: client.get(path).json()["status"] == "RUNNING")  # type: ignore[misc]
            home = stack.home_of(item["name"])
            assert (home / "note").read_text() == f"written in {item['name']}\n"
            assert (home / "large").read_bytes() == b"x" * _LARGE
