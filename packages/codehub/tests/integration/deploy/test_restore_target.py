"""A restore writes only where nothing is, or where the same restore was interrupted, and reads only what is trusted."""

from __future__ import annotations

import json
import os
import pty
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from codehub.adapters.homes.mark import MARK
from codehub.adapters.objectstore.layout import ID_KEY, OWNER_KEY
from codehub.adapters.objectstore.transfer import find_receipt
from codehub.cli import pg_programs, restore
from codehub.cli.backup_format import MANIFEST
from codehub.domain.errors import Transient
from testing.codehub.backups import Installation
from testing.codehub.full_stack import TIMEOUT_S, Stack
from testing.codehub.objectstore import S3Server

CONFLICT, USAGE, FAILED, INCOMPLETE = 6, 2, 1, 8
NOBODY = 65534


def interrupted(new: Installation, saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A restore that ends before the database is loaded."""

    def fail(*_: object) -> None:
        raise Transient("the database is gone")

    with monkeypatch.context() as patch:
        patch.setattr(pg_programs, "load", fail)
        assert new.run("restore", str(saved))[0] == FAILED


def test_a_repeated_restore_has_the_same_target_and_removes_nothing_elsewhere(
    old: Installation, new: Installation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    row, saved = old.create("w"), tmp_path / "saved"
    assert old.run("backup", str(saved))[0] == 0
    interrupted(new, saved, monkeypatch)
    elsewhere = tmp_path / "elsewhere"
    foreign = elsewhere / "users/somebody/workspaces/x/home/files/note"
    foreign.parent.mkdir(parents=True)
    foreign.write_text("of another installation")

    for name, value in (("CODEHUB_HOMES_DIR", str(elsewhere)), ("CODEHUB_ARCHIVE_URL", elsewhere.as_uri())):
        new.more = {name: value}
        code, printed = new.run("restore", str(saved))
        assert (code, name in printed) == (CONFLICT, True), printed
        assert foreign.read_text() == "of another installation"
    new.more = {}
    assert new.run("restore", str(saved))[0] == 0
    assert (new.files(row) / "note").read_text() == "written in w\n"


def test_a_repeated_restore_has_the_same_database(
    old: Installation, new: Installation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old.create("w")
    saved = tmp_path / "saved"
    assert old.run("backup", str(saved))[0] == 0
    interrupted(new, saved, monkeypatch)
    # Loaded already, but with another installation.
    code, printed = Installation(new.place, old.url, new.monkeypatch, new.capsys).run("restore", str(saved))
    assert (code, "CODEHUB_DATABASE_URL" in printed) == (CONFLICT, True), printed


def test_a_repeated_restore_does_not_take_an_empty_database_for_the_restored_one(
    old: Installation, new: Installation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    row, saved = old.create("w"), tmp_path / "saved"
    old.execute("INSERT INTO system_facts VALUES ('installation_id', '\"the-installation\"')", [])
    assert old.run("backup", str(saved))[0] == 0
    interrupted(new, saved, monkeypatch)
    assert new.run("migrate")[0] == 0
    code, printed = new.run("restore", str(saved))
    assert (code, "another CodeHub in it since" in printed) == (CONFLICT, True), printed
    new.execute("DROP SCHEMA public CASCADE", [])
    new.execute("CREATE SCHEMA public", [])
    assert new.run("restore", str(saved))[0] == 0
    assert new.row(row)["name"] == "w"


def test_a_repeated_restore_of_a_backup_of_an_older_version_completes(
    old: Installation, new: Installation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its manifest does not name the installation, and its archives are only in the dump."""
    rows, saved = [old.create("w"), old.create("archived")], tmp_path / "saved"
    old.archive(rows[1], remove=True)
    old.execute("INSERT INTO system_facts VALUES ('installation_id', '\"the-installation\"')", [])
    assert old.run("backup", str(saved))[0] == 0
    make_older(saved)

    def fail(*_: object, **__: object) -> None:
        raise Transient("killed")

    with monkeypatch.context() as patch:
        patch.setattr(restore, "settle_rows", fail)
        assert new.run("restore", str(saved))[0] == FAILED
    code, printed = new.run("restore", str(saved))
    assert code == 0, printed
    assert (new.files(rows[0]) / "note").read_text() == "written in w\n"
    assert [new.row(row)["error_reason"] for row in rows] == [None, None]


def make_older(saved: Path) -> None:
    written = json.loads((saved / MANIFEST).read_text())
    kept = {name: written[name] for name in ("codehub", "created_at", "archives_outside")}
    (saved / MANIFEST).write_text(json.dumps(kept))


@pytest.mark.xdist_group("s3")
@pytest.mark.parametrize(("owner", "expected"), [("the-installation", 0), ("another", CONFLICT)])
def test_an_object_store_is_used_again_by_a_backup_of_an_older_version_that_was_its_own(
    old: Installation, new: Installation, tmp_path: Path, s3_server: S3Server, owner: str, expected: int
) -> None:
    store = s3_server.fresh()
    store.put(OWNER_KEY, owner.encode())
    store.put(ID_KEY, b"the-store\n")
    old.create("w")
    (old.place / "installation-id").write_text("the-installation\n")
    old.more = new.more = s3_server.environment(store)
    saved = tmp_path / "saved"
    assert old.run("backup", str(saved))[0] == 0
    make_older(saved)
    code, printed = new.run("restore", str(saved))
    assert code == expected, printed
    store.close()


@pytest.mark.parametrize("owner", [b"somebody else", b""])
def test_an_archive_store_of_others_is_refused_and_unchanged(
    old: Installation, new: Installation, tmp_path: Path, owner: bytes
) -> None:
    row = old.create("w")
    receipt = old.archive(row, remove=True)
    assert old.run("backup", str(tmp_path / "saved"))[0] == 0
    data = new.archives_dir / receipt.archive_key
    data.parent.mkdir(parents=True)
    data.write_bytes(b"of others")
    if owner:
        (new.archives_dir / OWNER_KEY).write_bytes(owner)
    code, printed = new.run("restore", str(tmp_path / "saved"))
    assert (code, "files of another installation" in printed) == (CONFLICT, True), printed
    assert data.read_bytes() == b"of others"


def test_the_archive_store_that_was_backed_up_is_used_again(
    old: Installation, new: Installation, tmp_path: Path
) -> None:
    row = old.create("w")
    receipt = old.archive(row, remove=True)
    (old.archives_dir / ID_KEY).write_text("the-store\n")
    assert old.run("backup", str(tmp_path / "saved"))[0] == 0
    newer = old.archives_dir / row.id / "newer" / "home.tar.zst"
    newer.parent.mkdir()
    newer.write_bytes(b"made after the backup")
    new.more = {"CODEHUB_ARCHIVE_URL": old.archives_dir.as_uri()}
    code, printed = new.run("restore", str(tmp_path / "saved"))
    assert code == 0, printed
    assert newer.read_bytes() == b"made after the backup"
    assert new.row(row)["archive_key"] == receipt.archive_key


def test_a_key_for_secrets_of_another_installation_is_not_overwritten(
    old: Installation, new: Installation, tmp_path: Path
) -> None:
    old.create("w")
    (old.place / "secrets.key").write_text("old")
    assert old.run("backup", str(tmp_path / "saved"))[0] == 0
    new.place.mkdir()
    (new.place / "secrets.key").write_text("another")
    code, printed = new.run("restore", str(tmp_path / "saved"))
    assert (code, "is of another installation" in printed) == (CONFLICT, True), printed
    assert (new.place / "secrets.key").read_text() == "another"


def test_a_directory_of_homes_of_another_installation_is_not_taken_over(
    old: Installation, new: Installation, tmp_path: Path
) -> None:
    old.create("w")
    (old.homes_dir / MARK).write_text("old\n")
    assert old.run("backup", str(tmp_path / "saved"))[0] == 0
    new.homes_dir.mkdir(parents=True)
    (new.homes_dir / MARK).write_text("another\n")
    assert new.run("restore", str(tmp_path / "saved"))[0] == CONFLICT
    assert (new.homes_dir / MARK).read_text() == "another\n"


@pytest.mark.xdist_group("s3")
def test_archives_in_files_are_restored_into_an_object_store_and_backed_up_from_there(
    old: Installation, new: Installation, tmp_path: Path, s3_server: S3Server
) -> None:
    row = old.create("w")
    receipt = old.archive(row, remove=True)
    assert old.run("backup", str(tmp_path / "saved"))[0] == 0
    store = s3_server.fresh()
    store.put("bucket", b"")  # this server creates a bucket with its first object
    store.delete("bucket")
    new.more = s3_server.environment(store)
    code, printed = new.run("restore", str(tmp_path / "saved"))
    assert code == 0, printed
    assert find_receipt(store, receipt.archive_key) == receipt
    code, printed = new.run("backup", str(tmp_path / "again"))
    assert code == 0, printed
    store.delete(receipt.archive_key)
    assert new.run("backup", str(tmp_path / "third"))[0] == INCOMPLETE
    store.close()

    new.execute("DROP SCHEMA public CASCADE", [])
    new.execute("CREATE SCHEMA public", [])
    forgotten = Installation(tmp_path / "forgotten", new.url, new.monkeypatch, new.capsys)
    code, printed = forgotten.run("restore", str(tmp_path / "again"))
    assert (code, "set CODEHUB_ARCHIVE_URL" in printed) == (USAGE, True), printed


def others_directory(place: Path) -> Path:
    target = place / "target"
    target.mkdir()
    os.chown(target, NOBODY, NOBODY)
    return target


def below_others(place: Path) -> Path:
    target = others_directory(place) / "below"
    target.mkdir()
    return target


def linked_by_others(place: Path) -> Path:
    (place / "shared").mkdir()
    (place / "shared").chmod(0o1777)
    (place / "mine").mkdir()
    link = place / "shared/link"
    link.symlink_to(place / "mine")
    os.chown(link, NOBODY, NOBODY, follow_symlinks=False)
    return link


def writable_by_others(place: Path) -> Path:
    (place / "target").mkdir()
    (place / "target").chmod(0o1777)
    return place / "target"


def below_a_group(place: Path) -> Path:
    (place / "group").mkdir()
    (place / "group").chmod(0o770)
    return place / "group/new"


WAYS = [others_directory, below_others, linked_by_others, writable_by_others, below_a_group]


@pytest.mark.needs("root")
@pytest.mark.parametrize("way", WAYS)
def test_a_backup_is_not_written_where_others_could_read_or_replace_it(
    old: Installation, tmp_path: Path, way: Callable[[Path], Path]
) -> None:
    old.create("w")
    target = way(tmp_path)
    before = os.stat(target).st_mode if target.exists() else None
    code, printed = old.run("backup", str(target))
    assert code == USAGE, printed
    assert "who could redirect" in printed or "belongs to" in printed or "written by other users" in printed
    assert (os.stat(target).st_mode if target.exists() else None) == before
    assert not target.exists() or not list(target.iterdir())


@pytest.mark.needs("root")
@pytest.mark.parametrize("way", [others_directory, below_others, linked_by_others, writable_by_others])
def test_a_backup_that_others_could_have_changed_is_not_restored(
    old: Installation, new: Installation, tmp_path: Path, way: Callable[[Path], Path]
) -> None:
    old.create("w")
    assert old.run("backup", str(tmp_path / "saved"))[0] == 0
    target = way(tmp_path).resolve()
    for part in (tmp_path / "saved").iterdir():
        part.rename(target / part.name)
    code, printed = new.run("restore", str(tmp_path / "shared/link" if way is linked_by_others else target))
    assert (code, "changed" in printed or "redirect" in printed) == (USAGE, True), printed
    assert not new.homes_dir.exists()


def test_a_new_backup_is_private_whatever_is_missing_above_it(old: Installation, tmp_path: Path) -> None:
    old.create("w")
    assert old.run("backup", str(tmp_path / "a/b"))[0] == 0
    assert [(tmp_path / name).stat().st_mode & 0o777 for name in ("a", "a/b")] == [0o700, 0o700]


def test_backup_and_restore_show_progress_on_a_terminal_only(
    old: Installation, new: Installation, tmp_path: Path
) -> None:
    row = old.create("w")
    old.archive(old.create("archived"), remove=True)
    (old.files(row) / "large").write_bytes(b"x" * (1 << 20))
    for installation, arguments, expected in (
        (old, ("backup", str(tmp_path / "saved")), ("Copying homes: 1 of 1", "Copying archives: 1 of 1")),
        (new, ("restore", str(tmp_path / "saved")), ("Restoring homes: 1 of 1", "Restoring archives: 1 of 1")),
    ):
        stack = Stack(installation.place)
        stack.environment["CODEHUB_DATABASE_URL"] = installation.url
        ours, theirs = pty.openpty()
        done = subprocess.run(
            stack.command(*arguments),
            env=stack.environment,
            stdout=subprocess.PIPE,
            stderr=theirs,
            timeout=TIMEOUT_S,
            check=False,
        )
        os.close(theirs)
        shown = os.read(ours, 100_000).decode()
        os.close(ours)
        assert done.returncode == 0, shown
        assert [text for text in expected if text not in shown] == [], shown
        assert b"\x1b" not in done.stdout
