"""Whether files are still as recorded: the same answer in this process, by workers, and after a worker was killed."""

import os
from array import array
from pathlib import Path

import pytest

from sari.index import stamp_workers
from sari.index.stamp_workers import Recorded, StampCheck
from sari.index.table import numbers_of


def _recorded(root: Path, names: list[str]) -> Recorded:
    stamps: array[int] = array("q")
    for name in names:
        stamps.extend(numbers_of(os.lstat(root / name)))
    return [os.fsencode(name) for name in names], stamps


@pytest.fixture
def lists(tmp_path: Path) -> list[Recorded]:
    """Three lists of files, in which some files have changed since."""
    names = [[f"{part}-{number}" for number in range(30)] for part in "abc"]
    for some in names:
        for name in some:
            (tmp_path / name).write_text("before")
    found = [_recorded(tmp_path, some) for some in names]
    (tmp_path / "a-3").write_text("another size")
    (tmp_path / "b-7").unlink()
    # Same size and time, but another file.
    times = os.stat(tmp_path / "c-1")
    (tmp_path / "new").write_text("after!")
    os.replace(tmp_path / "new", tmp_path / "c-1")
    os.utime(tmp_path / "c-1", ns=(times.st_atime_ns, times.st_mtime_ns))
    (tmp_path / "c-2").unlink()
    (tmp_path / "c-2").mkdir()
    return found


_CHANGED = [{3}, {7}, {1, 2}]


def test_few_files_are_checked_in_this_process(tmp_path: Path, lists: list[Recorded]) -> None:
    assert StampCheck(os.fsencode(tmp_path), lists).result() == _CHANGED


def test_many_files_are_checked_by_workers(
    tmp_path: Path, lists: list[Recorded], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stamp_workers, "ALONE_BELOW", 10)
    monkeypatch.setattr(stamp_workers, "differing", None)
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    assert StampCheck(os.fsencode(tmp_path), lists).result() == _CHANGED


def test_the_files_of_a_killed_worker_are_checked_anyway(
    tmp_path: Path, lists: list[Recorded], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stamp_workers, "ALONE_BELOW", 10)
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    check = StampCheck(os.fsencode(tmp_path), lists)
    for worker in check._workers:
        assert worker._process is not None
        worker._process.kill()
    assert check.result() == _CHANGED


def test_a_cancelled_check_leaves_no_worker(
    tmp_path: Path, lists: list[Recorded], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stamp_workers, "ALONE_BELOW", 10)
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    check = StampCheck(os.fsencode(tmp_path), lists)
    started = [worker._process for worker in check._workers]
    check.cancel()
    assert len(started) == 2
    assert all(process is not None and process.returncode is not None for process in started)


def test_without_a_program_to_start_the_files_are_checked_anyway(
    tmp_path: Path, lists: list[Recorded], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stamp_workers, "ALONE_BELOW", 10)
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    monkeypatch.setattr("sys.executable", str(tmp_path / "missing/python"))
    assert StampCheck(os.fsencode(tmp_path), lists).result() == _CHANGED
