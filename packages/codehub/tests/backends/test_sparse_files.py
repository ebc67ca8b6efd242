"""Files with holes are packed without losing data, and their number of holes is bounded."""

from __future__ import annotations

import errno
import os
import traceback
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
    monkeypatch.setattr(tar, "MAX_SEGMENTS_READ", 3)
    with pytest.raises(ArchiveCorrupted, match="too many holes"):
        unpack_tree([stream], made(tmp_path / "refused"))


def test_whatever_may_be_archived_can_be_restored() -> None:
    """A file that ends in a hole has one more entry in its map. Earlier versions had no limit."""
    assert tar.MAX_SEGMENTS_READ > 10 * tar.MAX_SEGMENTS


@pytest.mark.needs("root")
def test_a_read_only_file_with_attributes_is_restored_by_any_user(tmp_path: Path) -> None:
    root = made(tmp_path / "home")
    (root / "file").write_bytes(b"content")
    os.setxattr(root / "file", "user.origin", b"here")
    (root / "file").chmod(0o444)
    stream = b"".join(pack_tree(root, Packed()))
    # Python loads the rest of what this takes, from where only root may read.
    unpack_tree([stream], made(tmp_path / "by root"))
    out = made(tmp_path / "out")
    os.chown(out, 65534, 65534)
    tmp_path.chmod(0o755)
    child = os.fork()
    if child == 0:
        try:
            os.chdir(out)  # the directories above are closed to others
            os.setgroups([])
            os.setresgid(65534, 65534, 65534)
            os.setresuid(65534, 65534, 65534)
            unpack_tree([stream], Path("."))
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert os.getxattr(out / "file", "user.origin") == b"here"
    assert os.stat(out / "file").st_mode & 0o7777 == 0o444


def test_attributes_that_cannot_be_listed_are_not_taken_for_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(fd: int) -> list[str]:
        raise OSError(errno.EIO, "Input/output error")

    root = made(tmp_path / "home")
    monkeypatch.setattr(os, "listxattr", failing)
    with pytest.raises(OSError, match="Input/output error"):
        list(pack_tree(root, Packed()))


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
