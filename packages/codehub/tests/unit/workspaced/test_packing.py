"""Packing a folder while programs go on in it."""

from __future__ import annotations

import io
import os
import subprocess
import tarfile
from pathlib import Path

import pytest

from codehub.workspaced import tars


def test_a_folder_is_packed_though_files_go_and_shrink_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    for name in ("a", "gone", "shrinks", "z"):
        (tmp_path / name).write_bytes(name.encode() * 1000)
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "in").write_text("in")
    (tmp_path / "leaves").mkdir()
    monkeypatch.chdir(tmp_path)

    def meanwhile(path: str, is_folder: bool) -> bool:
        """Change what is about to be read: its size is known already."""
        if path == "gone":
            os.unlink(path)
        elif path == "leaves":
            os.rmdir(path)
        elif path == "shrinks":
            os.truncate(path, 10)
        return False

    tars.pack(meanwhile)
    with tarfile.open(fileobj=io.BytesIO(capfdbinary.readouterr().out)) as archive:
        found = {member.name: archive.extractfile(member) for member in archive if member.isfile()}
        contents = {name: file.read() for name, file in found.items() if file is not None}
        assert set(archive.getnames()) == {"a", "folder", "folder/in", "shrinks", "z"}
    assert contents["a"] == b"a" * 1000
    assert contents["folder/in"] == b"in"
    assert contents["shrinks"] == b"shrinksshr".ljust(7000, b"\0")
    assert contents["z"] == b"z" * 1000


def test_a_folder_that_is_deeper_than_python_recurses_is_packed_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    monkeypatch.chdir(tmp_path)
    deep = "/".join("d" * 1500)
    os.makedirs("b")
    for name in ("b/2", "b/1", "c", "a"):
        Path(name).write_text(name)
    subprocess.run(["mkdir", "-p", deep], check=True)
    tars.pack()
    with tarfile.open(fileobj=io.BytesIO(capfdbinary.readouterr().out)) as archive:
        names = archive.getnames()
    assert names[:5] == ["a", "b", "b/1", "b/2", "c"]
    assert names[-1] == deep
    subprocess.run(["rm", "-rf", "d"], check=True)  # pytest removes folders recursively
