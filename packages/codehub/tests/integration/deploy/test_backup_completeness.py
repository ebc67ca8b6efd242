"""What is in a backup, what is not, and what a restore makes of that: nothing is lost without saying so."""

from __future__ import annotations

import json
import os
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from codehub.adapters.filesystem import dir_cursor, hard_links
from codehub.adapters.filesystem.dir_cursor import DirCursor
from codehub.adapters.homes.layout import inspect_home
from codehub.adapters.objectstore.layout import ID_KEY
from codehub.cli import backup as backup_command
from codehub.cli import pg_programs
from codehub.cli.backup import _HomeCopies
from codehub.cli.backup_format import MANIFEST
from codehub.domain.model import Workspace
from codehub.ports.homes import ArchiveReceipt
from testing.codehub.backups import Installation

INCOMPLETE = 8


def manifest(saved: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((saved / MANIFEST).read_text())
    return found


def after(monkeypatch: pytest.MonkeyPatch, owner: object, name: str, then: Callable[[], None]) -> None:
    """Do something right after the first call of a function."""
    real = getattr(owner, name)
    done: list[bool] = []

    def called(*arguments: Any, **named: Any) -> Any:
        result = real(*arguments, **named)
        if not done:
            done.append(True)
            then()
        return result

    monkeypatch.setattr(owner, name, called)


def note(installation: Installation, row: Workspace) -> str:
    return (installation.files(row) / "note").read_text()


def test_an_older_archive_never_stands_in_for_a_home_that_lost_its_mark(
    old: Installation, new: Installation, tmp_path: Path
) -> None:
    saved, lost, good = tmp_path / "saved", old.create("lost"), old.create("good")
    receipt = old.archive(lost, remove=False)
    (old.files(lost) / "note").write_text("newer than the archive\n")
    (old.files(lost).parent / "ctx.json").unlink()

    code, printed = old.run("backup", str(saved))
    assert (code, "1 of 2 workspaces are completely" in printed) == (INCOMPLETE, True), printed
    assert f"warning: lost ({lost.id}): its home" in printed
    assert manifest(saved)["stand_ins"] == {}
    assert list(manifest(saved)["incomplete"]) == [lost.id]

    code, printed = new.run("restore", str(saved))
    assert (code, f"lost: lost ({lost.id})" in printed) == (INCOMPLETE, True), printed
    assert f"is {receipt.archive_key}" in printed, "an administrator is told what there is"
    row = new.row(lost)
    assert (row["phase"], row["error_reason"], row["home_ctx"]["incarnation"]) == (
        "ERROR",
        "DataLost",
        lost.home_ctx and lost.home_ctx.incarnation,
    )
    assert [receipt.archive_key in event for event in new.events(lost)] == [True]
    assert note(new, lost) == "newer than the archive\n", "its files are there for an administrator"
    assert (new.row(good)["error_reason"], note(new, good)) == (None, "written in good\n")


def test_a_home_archived_during_the_backup_continues_from_the_archive_made_then(
    old: Installation, new: Installation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved = tmp_path / "saved"
    rows: list[Workspace] = []
    receipts: list[ArchiveReceipt] = []
    after(monkeypatch, _HomeCopies, "copy_all", lambda: rows.append(old.create("late")))
    after(monkeypatch, pg_programs, "dump", lambda: receipts.append(old.archive(rows[0], remove=True)))
    code, printed = old.run("backup", str(saved))
    assert code == 0, printed
    assert manifest(saved)["stand_ins"] == {rows[0].id: receipts[0].archive_key}
    code, printed = new.run("restore", str(saved))
    assert (code, "continue from their archives: 1" in printed) == (0, True), printed
    found = new.row(rows[0])
    assert (found["archive_key"], found["home_ctx"], found["error_reason"]) == (receipts[0].archive_key, None, None)


def test_a_home_that_is_removed_while_it_is_copied_is_not_taken_for_a_whole_one(
    old: Installation, new: Installation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is archived and removed after its mark was copied, and before its files were."""
    saved = tmp_path / "saved"
    rows: list[Workspace] = []
    receipts: list[ArchiveReceipt] = []

    def remove() -> None:
        receipts.append(old.archive(rows[0], remove=True))
        (saved / "homes" / rows[0].home_store_key / "files/note").unlink()  # it was gone before it was reached

    def create() -> None:
        rows.append(old.create("late"))
        after(monkeypatch, backup_command, "copy_tree", remove)

    after(monkeypatch, _HomeCopies, "copy_all", create)
    code, printed = old.run("backup", str(saved))
    assert code == 0, printed
    assert not (saved / "homes" / rows[0].home_store_key).exists()
    assert manifest(saved)["stand_ins"] == {rows[0].id: receipts[0].archive_key}
    assert new.run("restore", str(saved))[0] == 0
    assert new.row(rows[0])["archive_key"] == receipts[0].archive_key


def test_a_copy_of_an_archived_workspace_is_in_the_backup_by_the_archive_of_its_original(
    old: Installation, new: Installation, tmp_path: Path
) -> None:
    original, copy = old.create("original"), old.create("copy")
    receipt = old.archive(original, remove=True)
    old.execute(
        "UPDATE workspaces SET archive_key = %s, home_ctx = NULL WHERE id = %s", [receipt.archive_key, copy.id]
    )
    code, printed = old.run("backup", str(tmp_path / "saved"))
    assert code == 0, printed
    assert new.run("restore", str(tmp_path / "saved"))[0] == 0
    assert new.row(copy)["error_reason"] is None


def test_a_missing_or_damaged_archive_is_named_and_its_workspace_is_not_restored_empty(
    old: Installation, new: Installation, tmp_path: Path
) -> None:
    gone, damaged = old.create("gone"), old.create("damaged")
    (old.archives_dir / old.archive(gone, remove=True).archive_key).unlink()
    with (old.archives_dir / old.archive(damaged, remove=True).archive_key).open("ab") as file:
        file.write(b"more")
    code, printed = old.run("backup", str(tmp_path / "saved"))
    assert code == INCOMPLETE, printed
    assert sorted(manifest(tmp_path / "saved")["incomplete"]) == sorted([gone.id, damaged.id])
    assert new.run("restore", str(tmp_path / "saved"))[0] == INCOMPLETE
    assert {new.row(row)["error_reason"] for row in (gone, damaged)} == {"DataLost"}


def test_an_archive_store_that_is_not_the_one_it_was_is_named(
    old: Installation, new: Installation, tmp_path: Path
) -> None:
    """Its disk is not mounted, or CODEHUB_ARCHIVE_URL is not that of `codehub up`. All homes are there."""
    rows = [old.create("archived-before"), old.create("never-archived")]
    old.archive(rows[0], remove=False)
    (old.archives_dir / ID_KEY).write_text("the-store\n")
    old.execute('INSERT INTO system_facts VALUES (\'store.archives\', \'{"id": "the-store", "place": "x"}\')', [])
    assert old.run("backup", str(tmp_path / "whole"))[0] == 0
    old.archives_dir.rename(tmp_path / "unmounted")
    code, printed = old.run("backup", str(tmp_path / "saved"))
    assert (code, "1 of 2 workspaces" in printed) == (INCOMPLETE, True), printed
    assert list(manifest(tmp_path / "saved")["incomplete"]) == [rows[0].id]
    assert "is its disk mounted" in printed
    assert new.run("restore", str(tmp_path / "saved"))[0] == 0
    assert [new.row(row)["error_reason"] for row in rows] == [None, None]


@pytest.mark.parametrize("storage", ["docker-volume", "pvc"])
def test_a_home_in_a_volume_is_named_by_backup_and_restore_and_lost_until_it_is_found(
    old: Installation, new: Installation, tmp_path: Path, storage: str
) -> None:
    row = old.create("elsewhere", storage=storage)
    code, printed = old.run("backup", str(tmp_path / "saved"))
    assert (code, f"codehub ws archive {row.id}" in printed) == (INCOMPLETE, True), printed
    code, printed = new.run("restore", str(tmp_path / "saved"))
    assert (code, "its home is a volume" in printed) == (INCOMPLETE, True), printed
    found = new.row(row)
    # The coordinator clears this error by itself if the recorded volume exists, and replaces it by nothing else.
    assert (found["phase"], found["error_reason"]) == ("ERROR", "DataLost")
    assert row.home_ctx is not None
    assert found["home_ctx"]["incarnation"] == row.home_ctx.incarnation


def too_deep(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with DirCursor(files) as at:
        for _ in range(60):
            at.enter("d", make=True)
    monkeypatch.setattr(dir_cursor, "_MOST_LEVELS", 50)


def too_many_links(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(20):
        (files / f"{number}").touch()
        os.link(files / f"{number}", files / f"{number}-again")
    monkeypatch.setattr(hard_links, "_MOST_BYTES", 3_000)


@pytest.mark.parametrize("attack", [too_deep, too_many_links])
def test_one_hostile_home_is_named_and_keeps_nobody_else_out(
    old: Installation,
    new: Installation,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    attack: Callable[[Path, pytest.MonkeyPatch], None],
) -> None:
    rows = [old.create(name) for name in ("first", "hostile", "last")]
    attack(old.files(rows[1]), monkeypatch)
    _only_the_second_is_incomplete(old, new, tmp_path / "saved", rows)


def _only_the_second_is_incomplete(old: Installation, new: Installation, saved: Path, rows: list[Workspace]) -> None:
    code, printed = old.run("backup", str(saved))
    assert (code, "2 of 3 workspaces are completely" in printed) == (INCOMPLETE, True), printed
    assert list(manifest(saved)["incomplete"]) == [rows[1].id]
    code, printed = new.run("restore", str(saved))
    assert (code, f"lost: hostile ({rows[1].id}): its home could not be copied completely" in printed) == (
        INCOMPLETE,
        True,
    ), printed
    assert [new.row(row)["error_reason"] for row in rows] == [None, "DataLost", None]
    assert [note(new, row) for row in (rows[0], rows[2])] == ["written in first\n", "written in last\n"]
    assert inspect_home(new.files(rows[1]).parent).ctx is None


def test_a_file_whose_owner_holds_a_lease_is_named_and_stops_nobody(
    old: Installation, new: Installation, tmp_path: Path
) -> None:
    rows = [old.create(name) for name in ("first", "hostile", "last")]
    held = old.files(rows[1]) / os.fsdecode(b"held\xff\x1b]0;title\x07")  # no text, and it controls terminals
    held.touch()
    code = (
        "import fcntl, signal, sys; signal.signal(signal.SIGIO, signal.SIG_IGN)\n"
        f"file = open({str(held)!r}, 'r+'); fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)\n"
        "print('held', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(["python3", "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        _only_the_second_is_incomplete(old, new, tmp_path / "saved", rows)
        assert "\x1b" not in "".join(new.events(rows[1]))
        holder.kill()


@pytest.mark.needs("root")
def test_special_files_do_not_disturb_a_backup(old: Installation, new: Installation, tmp_path: Path) -> None:
    row = old.create("special")
    files = old.files(row)
    os.mkfifo(files / "pipe")
    os.mknod(files / "zero", 0o666 | 0o020000, os.makedev(1, 5))
    place = os.open(files, os.O_PATH)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"/proc/self/fd/{place}/socket")  # its own path is too long for a socket
        os.close(place)
        assert old.run("backup", str(tmp_path / "saved"))[0] == 0
    assert new.run("restore", str(tmp_path / "saved"))[0] == 0
    assert sorted(os.listdir(new.files(row))) == ["note", "pipe"]


def test_the_limits_of_one_home_are_not_shared_with_the_others(
    old: Installation, new: Installation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hard links that fit for each home, and not for all together; the target's path is much longer."""
    rows = [old.create(f"w{number}") for number in range(4)]
    for row in rows:
        for number in range(10):
            (old.files(row) / f"{number}").touch()
            os.link(old.files(row) / f"{number}", old.files(row) / f"{number}-again")
    monkeypatch.setattr(hard_links, "_MOST_BYTES", 10 * (256 + 20))
    code, printed = old.run("backup", str(tmp_path / "saved"))
    assert code == 0, printed
    new.more["CODEHUB_HOMES_DIR"] = str(new.place / ("long" * 40) / "homes")
    code, printed = new.run("restore", str(tmp_path / "saved"))
    assert code == 0, printed
    for row in rows:
        files = Path(new.more["CODEHUB_HOMES_DIR"]) / row.home_store_key / "files"
        assert (files / "7").samefile(files / "7-again")


def test_an_administrator_accepts_incomplete_homes(
    old: Installation, new: Installation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = old.create("deep")
    too_deep(old.files(row), monkeypatch)
    assert old.run("backup", str(tmp_path / "saved"))[0] == INCOMPLETE
    code, printed = new.run("restore", "--accept-incomplete", str(tmp_path / "saved"))
    assert (code, f"warning: deep ({row.id})" in printed) == (0, True), printed
    assert (new.row(row)["error_reason"], note(new, row)) == (None, "written in deep\n")
    assert inspect_home(new.files(row).parent).ctx == row.home_ctx
    assert "not completely" in new.events(row)[-1]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "disk"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16m,mode=700", "none", place], check=True)
    yield place
    subprocess.run(["umount", place], check=True)


@pytest.mark.needs("root")
def test_a_home_that_fills_the_disk_makes_room_for_the_others(
    old: Installation, new: Installation, tmp_path: Path, small_disk: Path
) -> None:
    rows = sorted((old.create(name) for name in ("a", "b", "c")), key=lambda row: row.home_store_key)
    (old.files(rows[0]) / "large").write_bytes(os.urandom(20 << 20))
    code, printed = old.run("backup", str(small_disk / "saved"))
    assert (code, "no space left for it" in printed) == (INCOMPLETE, True), printed
    assert new.run("restore", str(small_disk / "saved"))[0] == INCOMPLETE
    assert [new.row(row)["error_reason"] for row in rows] == ["DataLost", None, None]
    assert note(new, rows[2]) == f"written in {rows[2].name}\n"


@pytest.mark.needs("root")
def test_a_restore_onto_a_full_disk_is_repeated_once_there_is_room(
    old: Installation, new: Installation, tmp_path: Path, small_disk: Path
) -> None:
    rows = [old.create(name) for name in ("a", "b")]
    (old.files(rows[1]) / "large").write_bytes(os.urandom(6 << 20))
    assert old.run("backup", str(tmp_path / "saved"))[0] == 0
    new.more["CODEHUB_HOMES_DIR"] = str(small_disk / "homes")
    (small_disk / "filler").write_bytes(os.urandom(12 << 20))
    code, printed = new.run("restore", str(tmp_path / "saved"))
    assert (code, "No space left" in printed) == (1, True), printed
    (small_disk / "filler").unlink()
    code, printed = new.run("restore", str(tmp_path / "saved"))
    assert code == 0, printed
    assert (small_disk / "homes" / rows[1].home_store_key / "files/large").stat().st_size == 6 << 20
