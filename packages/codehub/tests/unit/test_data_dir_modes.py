"""Who may read what is in the data directory."""

from __future__ import annotations

import os
import socket
import tempfile
from pathlib import Path

from codehub.adapters.embedded.account import Account
from codehub.adapters.objectstore.store import Store
from codehub.cli.stack import datadir


def mode_of(path: Path) -> int:
    return path.stat().st_mode & 0o7777


def test_archives_are_closed_to_others_from_the_start_and_after_an_upgrade(tmp_path: Path) -> None:
    archives = tmp_path / "archives"
    Store(f"file://{archives}").close()
    assert archives.stat().st_mode & 0o777 == 0o700
    archives.chmod(0o755)
    datadir.prepare(tmp_path)
    assert archives.stat().st_mode & 0o777 == 0o700


def test_what_an_older_codehub_started_for_root_alone_is_opened_to_the_group_and_no_link_is_followed(
    tmp_path: Path,
) -> None:
    outside = tmp_path / "outside"
    outside.write_text("of somebody else")
    outside.chmod(0o600)
    with tempfile.TemporaryDirectory(dir="/tmp") as short, socket.socket(socket.AF_UNIX) as ide:
        instances = Path(short, "run/instances")
        run_dir, start = instances / "w-1", instances / ".s/1234"
        for place in (run_dir, start):
            place.mkdir(mode=0o700, parents=True)
        record = run_dir / "record.json"
        record.write_text("{}")
        record.chmod(0o600)
        ide.bind(str(start / "ide.sock"))
        (start / "ide.sock").chmod(0o755)
        (start / "link").symlink_to(outside)
        os.link(outside, start / "hard-link")
        datadir.share(Path(short), Account(os.getuid(), os.getgid(), switched=True))
        assert (mode_of(run_dir), mode_of(record)) == (0o750, 0o640)
        assert (mode_of(start), mode_of(start / "ide.sock")) == (0o2710, 0o775)
        assert mode_of(outside) == 0o600
