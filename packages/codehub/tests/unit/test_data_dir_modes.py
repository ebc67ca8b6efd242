"""Who may read what is in the data directory."""

from __future__ import annotations

from pathlib import Path

from codehub.adapters.objectstore.store import Store
from codehub.cli.stack import datadir


def test_archives_are_closed_to_others_from_the_start_and_after_an_upgrade(tmp_path: Path) -> None:
    archives = tmp_path / "archives"
    Store(f"file://{archives}").close()
    assert archives.stat().st_mode & 0o777 == 0o700
    archives.chmod(0o755)
    datadir.prepare(tmp_path)
    assert archives.stat().st_mode & 0o777 == 0o700
