"""The transaction of an edit: after a crash at any step, all of its files are changed or none."""

import os
import shutil
from pathlib import Path

import pytest

from sari.edits.folders import EditRefused
from sari.edits.transaction import FileChange, Transactions
from testing.sari.trees import tree_bytes


class _Killed(BaseException):
    pass


def _changes() -> list[FileChange]:
    return [FileChange(f"{name}.txt".encode(), b"before\n", b"after\n") for name in ("a", "d/b", "d/c")]


@pytest.fixture
def files(tmp_path: Path) -> Path:
    root = tmp_path / "files"
    (root / "d").mkdir(parents=True)
    for change in _changes():
        (root / os.fsdecode(change.path)).write_bytes(change.before)
    return root


def _killed_at(step: int, root: Path, transactions: Transactions) -> bool:
    """Run the transaction in a process that ends at its n-th step, without any clean-up; whether it got that far."""
    child = os.fork()
    if child == 0:
        left = [step]

        def checkpoint(_: str) -> None:
            left[0] -= 1
            if left[0] < 0:
                os._exit(9)

        transactions.apply(root, "0" * 32, "request", _changes(), {"files": []}, checkpoint)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9


def test_a_crash_at_any_instant_leaves_all_or_nothing(files: Path, tmp_path: Path) -> None:
    seen: set[bytes] = set()
    for step in range(100):
        root, data = tmp_path / f"run{step}", tmp_path / f"data{step}"
        shutil.copytree(files, root)
        was_killed = _killed_at(step, root, Transactions(data))
        Transactions(data).recover()
        assert sorted(tree_bytes(root)) == ["a.txt", "d/b.txt", "d/c.txt"], f"step {step}"
        assert len(set(tree_bytes(root).values())) == 1, f"step {step}"
        seen |= set(tree_bytes(root).values())
        is_done = (root / "a.txt").read_bytes() == b"after\n"
        assert (Transactions(data).applied("0" * 32) is not None) == is_done
        # The call is repeated by its client, and ends in the same state.
        Transactions(data).apply(root, "0" * 32, "request", _changes(), {"files": []})
        assert set(tree_bytes(root).values()) == {b"after\n"}
        if not was_killed:
            break
    else:
        raise AssertionError("the transaction never ends")
    assert step > 10
    assert seen == {b"before\n", b"after\n"}


@pytest.mark.parametrize("how", ["in place", "renamed"])
def test_a_file_that_was_edited_after_a_crash_is_kept(files: Path, tmp_path: Path, how: str) -> None:
    transactions = Transactions(tmp_path / "data")
    steps = [0]

    def checkpoint(name: str) -> None:
        steps[0] += name == "replaced"
        if steps[0] == 1:
            raise _Killed

    with pytest.raises(_Killed):
        transactions.apply(files, "0" * 32, "request", _changes(), {}, checkpoint)
    assert (files / "a.txt").read_bytes() == b"after\n"
    if how == "in place":
        (files / "d/c.txt").write_bytes(b"mine\n")
    else:
        (files / "mine").write_bytes(b"mine\n")
        os.replace(files / "mine", files / "d/c.txt")
    Transactions(tmp_path / "data").recover()
    assert tree_bytes(files) == {"a.txt": b"before\n", "d/b.txt": b"before\n", "d/c.txt": b"mine\n"}


@pytest.mark.parametrize("how", ["in place", "renamed"])
def test_a_file_that_is_edited_during_the_transaction_is_kept(files: Path, tmp_path: Path, how: str) -> None:
    def checkpoint(name: str) -> None:
        if name == "commit":
            if how == "in place":
                (files / "d/b.txt").write_bytes(b"mine, mine\n")
            else:
                (files / "mine").write_bytes(b"mine, mine\n")
                os.replace(files / "mine", files / "d/b.txt")

    with pytest.raises(EditRefused, match="put back"):
        Transactions(tmp_path / "data").apply(files, "0" * 32, "request", _changes(), {}, checkpoint)
    assert tree_bytes(files) == {"a.txt": b"before\n", "d/b.txt": b"mine, mine\n", "d/c.txt": b"before\n"}


def test_a_folder_that_becomes_a_link_is_not_followed(files: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "b.txt").write_bytes(b"before\n")
    (outside / "c.txt").write_bytes(b"before\n")
    shutil.rmtree(files / "d")
    (files / "d").symlink_to(outside)
    with pytest.raises(EditRefused, match="link"):
        Transactions(tmp_path / "data").apply(files, "0" * 32, "request", _changes(), {})
    assert (files / "a.txt").read_bytes() == b"before\n"
    assert tree_bytes(outside) == {"b.txt": b"before\n", "c.txt": b"before\n"}


def test_a_full_disk_changes_nothing(files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = [0]
    link = os.link

    def full(*arguments: object, **options: object) -> None:
        calls[0] += 1
        if calls[0] == 2:
            raise OSError(28, "No space left on device")
        link(*arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "link", full)
    with pytest.raises(EditRefused, match="No space"):
        Transactions(tmp_path / "data").apply(files, "0" * 32, "request", _changes(), {})
    assert tree_bytes(files) == {os.fsdecode(change.path): change.before for change in _changes()}


def test_mode_and_owner_are_kept(files: Path, tmp_path: Path) -> None:
    (files / "a.txt").chmod(0o754)
    if os.getuid() == 0:
        os.chown(files / "a.txt", 1234, 4321)
    before = (files / "a.txt").stat()
    Transactions(tmp_path / "data").apply(files, "0" * 32, "request", _changes(), {})
    after = (files / "a.txt").stat()
    assert (after.st_mode, after.st_uid, after.st_gid) == (before.st_mode, before.st_uid, before.st_gid)


def test_a_file_that_changes_between_planning_and_writing_is_not_reported_as_changed(
    files: Path, tmp_path: Path
) -> None:
    transactions = Transactions(tmp_path / "journals")
    transactions.apply(files, "0" * 32, "request", _changes(), {"files": []})
    for change in _changes():
        (files / os.fsdecode(change.path)).write_bytes(change.before)
    (files / "a.txt").write_bytes(b"another client's\n")
    with pytest.raises(EditRefused, match="changed since"):
        transactions.apply(files, "0" * 32, "request", _changes(), {"files": []})
    assert (files / "d/b.txt").read_bytes() == b"before\n"
