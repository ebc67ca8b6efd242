"""Files that change while they are archived, and attributes and sizes that not every format or file system can hold."""

from __future__ import annotations

import os
import resource
import subprocess
from pathlib import Path

import pytest

from codehub.adapters.tarball import format as tar
from codehub.adapters.tarball import pack
from codehub.adapters.tarball.pack import Packed, pack_tree
from codehub.adapters.tarball.unpack import unpack_tree
from codehub.domain.errors import OutOfSpace, Transient
from testing.codehub.trees import differences, fingerprint


def made(path: Path) -> Path:
    path.mkdir(parents=True)
    return path


# A pax record is `LENGTH key=value`: a key ends with the first `=`. GNU tar escapes `=` and `%` in names.
XATTRS = {
    "user.a": b"of another attribute",
    "user.a=b": b"c",
    "user.=": b"=",
    "user.100%": b"%3D",
    "user.%3D": b"v",
    "user.%253D=": b"",
    "user.l\u00e4nge\n": b"\n\0",
}


def test_names_of_xattrs_may_contain_everything(tmp_path: Path) -> None:
    root, out, gnu = made(tmp_path / "home"), made(tmp_path / "out"), made(tmp_path / "gnu")
    (root / "file").write_bytes(b"content")
    for name, value in XATTRS.items():
        os.setxattr(root / "file", name, value)
        os.setxattr(root, name, value)
    stream = b"".join(pack_tree(root, Packed()))
    unpack_tree([stream], out, len(stream))
    subprocess.run(["tar", "-xpf-", "-C", gnu, "--xattrs", "--xattrs-include=user.*"], input=stream, check=True)
    assert len(os.listxattr(root / "file")) == len(XATTRS)
    assert differences(fingerprint(root), fingerprint(out)) == []
    assert differences(fingerprint(root), fingerprint(gnu)) == []


def test_names_of_xattrs_in_archives_of_earlier_versions_are_what_they_were(tmp_path: Path) -> None:
    """They were not escaped. A name that began with `=` was lost, and the home must be restored all the same."""
    names = (b"%3D", b"%25", b"=")
    records = b"".join(tar._record(b"SCHILY.xattr.user." + name, b"%d" % number) for number, name in enumerate(names))
    root = made(tmp_path / "out")
    header = tar.encode(tar.Entry(b"x", tar.PAX, size=len(records))) + records + bytes(tar.padding(len(records)))
    unpack_tree([header, tar.encode(tar.Entry(b"file", tar.FILE)), tar.END], root)
    assert {name: os.getxattr(root / "file", name) for name in os.listxattr(root / "file")} == {
        "user.%3D": b"0",
        "user.%25": b"1",
    }


def test_a_file_that_shrinks_under_us_fails_the_archive(tmp_path: Path) -> None:
    root = made(tmp_path / "home/data")
    (root / "large").write_bytes(bytes(range(256)) * 16_384)
    chunks = pack_tree(root.parent, Packed())
    next(chunks)
    os.truncate(root / "large", 10)
    with pytest.raises(Transient, match="'data/large' shrank"):
        list(chunks)


def test_a_file_that_grows_is_archived_as_long_as_it_was(tmp_path: Path) -> None:
    root, out = made(tmp_path / "home"), made(tmp_path / "out")
    content = bytes(range(256)) * 16_384
    (root / "large").write_bytes(content)
    chunks = pack_tree(root, Packed())
    first = next(chunks)
    with (root / "large").open("ab") as file:
        file.write(b"more")
    unpack_tree([first, *chunks], out)
    assert (out / "large").read_bytes() == content


def test_a_pipe_in_place_of_a_listed_file_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = made(tmp_path / "home/data")
    (root / "file").touch()
    real = pack._open

    def swap(fd: int, name: str) -> int:
        (root / "file").unlink()
        os.mkfifo(root / "file")
        return real(fd, name)

    monkeypatch.setattr(pack, "_open", swap)
    with pytest.raises(Transient, match="'data/file' changed"):
        list(pack_tree(root.parent, Packed()))


def test_a_file_that_is_too_large_for_the_file_system_does_not_wait_for_space(tmp_path: Path) -> None:
    """XFS allows sparse files of 8 EB, ext4 of 16 TB."""
    root, out = made(tmp_path / "home"), made(tmp_path / "out")
    with (root / "sparse").open("wb") as file:
        file.truncate(1 << 40)
        file.seek(1 << 39)
        file.write(b"data")
    stream = b"".join(pack_tree(root, Packed()))
    assert len(stream) < 20_000
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 39, before[1]))
    try:
        with pytest.raises(Transient, match="larger than a file may be") as refused:
            unpack_tree([stream], out)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert not isinstance(refused.value, OutOfSpace)
