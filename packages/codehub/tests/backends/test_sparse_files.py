"""Files with holes are packed without losing data, and their number of holes is bounded."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from codehub.adapters.tarball import format as tar
from codehub.adapters.tarball import pack
from codehub.adapters.tarball.pack import Packed, pack_tree
from codehub.adapters.tarball.unpack import unpack_tree
from codehub.domain.errors import ArchiveCorrupted, Terminal


def made(path: Path) -> Path:
    path.mkdir()
    return path


def with_holes(path: Path, pieces: int) -> Path:
    with path.open("wb") as file:
        for number in range(pieces):
            os.pwrite(file.fileno(), b"data", number * 8192)
        file.truncate(pieces * 8192)
    return path


def test_a_file_with_more_holes_than_are_kept_in_memory_is_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = made(tmp_path / "home")
    with_holes(root / "disk.img", 4)
    monkeypatch.setattr(pack, "MAX_SEGMENTS", 4)
    stream = b"".join(pack_tree(root, Packed()))
    with_holes(root / "disk.img", 5)
    with pytest.raises(Terminal, match=r"'disk\.img' has more than 4 holes"):
        list(pack_tree(root, Packed()))
    unpack_tree([stream], made(tmp_path / "kept"))
    assert (tmp_path / "kept/disk.img").read_bytes() == b"data".ljust(8192, b"\0") * 4
    monkeypatch.setattr(tar, "MAX_SEGMENTS", 3)
    with pytest.raises(ArchiveCorrupted, match="too many holes"):
        unpack_tree([stream], made(tmp_path / "refused"))


def test_an_error_while_looking_for_holes_is_not_a_hole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rest of the file would be archived as zeros, and its home removed."""
    root = made(tmp_path / "home")
    with_holes(root / "disk.img", 4)
    real = os.lseek

    def failing(fd: int, offset: int, whence: int) -> int:
        if whence == os.SEEK_DATA and offset:
            raise OSError(errno.EIO, "Input/output error")
        return real(fd, offset, whence)

    monkeypatch.setattr(os, "lseek", failing)
    with pytest.raises(OSError, match="Input/output error"):
        list(pack_tree(root, Packed()))
