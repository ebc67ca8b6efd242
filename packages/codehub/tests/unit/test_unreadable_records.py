"""An instance whose record cannot be read is unknown, not absent: its home would be archived and removed while it runs."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest

from codehub.adapters.process import records
from codehub.adapters.process.layout import RunLayout
from codehub.adapters.process.records import RECORD, boot_id, is_leftover, leftovers, read_record
from codehub.adapters.process.supervisor import start_ticks
from codehub.domain.errors import BackendDown

WORKSPACE, IDENTITY = "w-1", "start-1"


@pytest.fixture
def layout(tmp_path: Path) -> RunLayout:
    """Return a layout with the record of an instance that runs: this process."""
    made = RunLayout(tmp_path / "run")
    raw = {
        "workspace_id": WORKSPACE, "identity": IDENTITY, "spec_digest": "d", "boot": boot_id(), "pid": os.getpid(),
        "start": start_ticks(os.getpid()), "uid": None, "host": "", "port": 0, "socket_path": "", "secret": None,
    }  # fmt: skip
    (made.make(WORKSPACE) / RECORD).write_text(json.dumps(raw))
    return made


def _full(*_: object, **__: object) -> bytes:
    raise OSError(errno.EMFILE, "Too many open files")


def test_a_record_that_cannot_be_read_is_not_taken_for_a_missing_one(
    layout: RunLayout, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = read_record(layout.run_dir(WORKSPACE))
    assert found is not None
    assert found.alive
    assert read_record(layout.root / "another") is None
    monkeypatch.setattr(Path, "read_bytes", _full)
    with pytest.raises(BackendDown, match="Too many open files"):
        read_record(layout.run_dir(WORKSPACE))
    with pytest.raises(BackendDown):
        is_leftover(os.getpid(), IDENTITY, None)
    monkeypatch.setattr(records, "start_ticks", _full)
    with pytest.raises(BackendDown):
        assert found.alive


def test_a_directory_whose_record_cannot_be_read_stays(layout: RunLayout, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "read_bytes", _full)
    for _ in range(2):
        with pytest.raises(BackendDown):
            layout.remove(WORKSPACE, "")
    monkeypatch.undo()
    assert read_record(layout.run_dir(WORKSPACE)) is not None


def test_processes_that_cannot_be_listed_are_not_taken_for_ended(
    layout: RunLayout, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "listdir", _full)
    with pytest.raises(BackendDown):
        leftovers(IDENTITY, None)
    with pytest.raises(BackendDown):
        layout.workspaces()
