"""Hostile archives: uploaded into a workspace, and sent by a workspace to `codehub ws cp`. Nothing outside is touched."""

from __future__ import annotations

import contextlib
import io
import os
import tarfile
from collections.abc import Iterable
from pathlib import Path

import pytest

from codehub.cli.ws_copy import _unpack
from codehub.domain.errors import Conflict
from codehub.workspaced import tars

SECRET = "of somebody else"


def member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "", mode: int = 0o644) -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.type, made.linkname, made.mode = kind, link, mode
    made.size = 4 if kind == tarfile.REGTYPE else 0
    return made


def sym(name: str, target: str) -> tarfile.TarInfo:
    return member(name, tarfile.SYMTYPE, target)


def hard(name: str, target: str) -> tarfile.TarInfo:
    return member(name, tarfile.LNKTYPE, target)


def folder(name: str) -> tarfile.TarInfo:
    return member(name, tarfile.DIRTYPE, mode=0o755)


def packed(members: Iterable[tarfile.TarInfo]) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for each in members:
            archive.addfile(each, io.BytesIO(b"evil"))
    return made.getvalue()


# Each has a part that would write to, or link to, `victim` beside the folder.
HOSTILE = {
    "a name above": [member("../victim")],
    "a name above, further inside": [member("a/../../victim")],
    "an absolute name": [member("/proc/self/cwd/victim")],
    "a file through a link": [sym("out", ".."), member("out/victim")],
    "a file through a link that leads back and out": [
        sym("s", "."),
        sym("out", "s/s/s/../../.."),
        member("out/victim"),
    ],
    "a link that leads back and out": [sym("s", "."), sym("out", "s/s/../..")],
    "a hard link above": [hard("h", "../victim")],
    "a hard link through a link that leads back and out": [
        sym("s", "."),
        sym("out", "s/s/../.."),
        hard("h", "out/victim"),
    ],
    "a hard link to a link, at another depth": [
        folder("a"),
        folder("a/b"),
        sym("a/b/s", "../../victim"),
        hard("h", "a/b/s"),
        member("h"),
    ],
    "a hard link to a link to the folder, at another depth": [
        folder("a"),
        folder("a/b"),
        sym("a/b/s", "../.."),
        hard("h", "a/b/s"),
    ],
    "a hard link to a folder of links": [folder("a"), sym("a/s", ".."), hard("h", "a/s"), member("h/../victim")],
    "a file over a link": [folder("a"), sym("a/s", "../../victim"), member("a/s")],
    "a hard link to nothing": [hard("h", "missing")],
    "a long way of links": [
        *(sym(f"l{n}", f"l{n - 1}") for n in range(1, 30)),
        sym("l0", "../.."),
        member("l29/victim"),
    ],
}


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder with something beside it that is not the archive's. What leaves it stays below `tmp_path`."""
    beside = tmp_path / "one" / "two"
    (beside / "folder").mkdir(parents=True)
    (beside / "victim").write_text(SECRET)
    (beside / "folder" / "kept").write_text("kept")
    return beside / "folder"


def assert_harmless(place: Path) -> None:
    assert (place.parent / "victim").read_text() == SECRET
    assert (place.parent / "victim").stat().st_nlink == 1
    assert sorted(os.listdir(place.parent)) == ["folder", "victim"]
    assert (place / "kept").read_text() == "kept"
    for above in list(place.parents)[:2]:
        assert above.stat().st_mode & 0o777 == 0o755, "a link's mode is not given to what it leads to"
    for name in os.listdir(place):
        assert not name.startswith(".codehub-upload-")
        if (place / name).is_symlink():
            assert (place / name).resolve().is_relative_to(place.resolve())


@pytest.mark.parametrize("what", HOSTILE)
def test_an_upload_is_refused_as_a_whole(what: str, place: Path) -> None:
    with pytest.raises(ValueError, match=r"leads out|goes through|names no file"):
        tars.unpack(io.BytesIO(packed(HOSTILE[what])), str(place), "r|*")
    assert_harmless(place)
    assert os.listdir(place) == ["kept"]


@pytest.mark.parametrize("what", HOSTILE)
def test_what_a_workspace_sends_writes_nothing_outside_the_folder(what: str, place: Path) -> None:
    sent = packed(HOSTILE[what])
    with contextlib.suppress(Conflict):  # or it is unpacked without what leads outside
        _unpack(iter([sent[:700], sent[700:]]), place)
    assert_harmless(place)


def test_links_that_stay_inside_and_files_that_are_replaced_arrive(place: Path) -> None:
    (place / "old").symlink_to(place.parent / "victim")
    members = [folder("a"), member("a/file"), sym("a/up", "../a/file"), hard("second", "a/file"), member("old")]
    assert tars.unpack(io.BytesIO(packed(members)), str(place), "r|*") == 5
    assert (place / "a/up").read_text() == (place / "second").read_text() == "evil"
    assert (place / "a/file").stat().st_ino == (place / "second").stat().st_ino
    assert (place / "old").read_text() == "evil"
    assert not (place / "old").is_symlink()
    assert_harmless(place)


def test_links_of_a_virtual_environment_are_left_out_of_a_download_and_named(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _unpack(iter([packed([sym("bin\x1b[2Jpython", "/usr/bin/python3"), member("code.py")])]), place)
    assert sorted(os.listdir(place)) == ["code.py", "kept"]
    shown = capsys.readouterr().err
    assert "1 links that lead out" in shown
    assert "\x1b[2J" not in shown


@pytest.mark.parametrize("kind", [tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE])
def test_devices_are_left_out_and_rights_are_only_the_users(kind: bytes, place: Path) -> None:
    members = [member("device", kind), member("su", mode=0o6755)]
    tars.unpack(io.BytesIO(packed(members)), str(place), "r|*")
    assert sorted(os.listdir(place)) == ["kept", "su"]
    assert (place / "su").stat().st_mode & 0o7777 == 0o755
    assert (place / "su").stat().st_uid == os.getuid()


def test_a_sparse_file_of_a_terabyte_takes_no_space(place: Path) -> None:
    huge = tarfile.TarInfo("huge")
    table = b"1\n0\n4\n"
    huge.pax_headers = {
        "GNU.sparse.major": "1",
        "GNU.sparse.minor": "0",
        "GNU.sparse.name": "huge",
        "GNU.sparse.realsize": str(1 << 40),
    }
    content = table.ljust(512, b"\0") + b"evil"
    huge.size = len(content)
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w", format=tarfile.PAX_FORMAT) as archive:
        archive.addfile(huge, io.BytesIO(content))
    tars.unpack(io.BytesIO(made.getvalue()), str(place), "r|*")
    found = (place / "huge").stat()
    assert found.st_blocks * 512 < 1 << 20
    with (place / "huge").open("rb") as file:
        assert file.read(4) == b"evil"


@pytest.mark.parametrize("name", ["n" * 300, "d/" * 3000 + "f"], ids=["a long name", "a long path"])
def test_a_name_that_no_file_can_have_is_an_error_that_leaves_nothing(name: str, place: Path) -> None:
    with pytest.raises((OSError, ValueError)):
        tars.unpack(io.BytesIO(packed([member("fine"), member(name)])), str(place), "r|*")
    assert os.listdir(place) == ["kept"]
    assert_harmless(place)


def header(kind: bytes, size: int) -> bytes:
    made = member("headers", kind)
    made.size = size
    return made.tobuf(tarfile.USTAR_FORMAT)


class Endless:
    """An archive that goes on with zeros for as long as it is read."""

    def __init__(self, begin: bytes) -> None:
        self._begin = io.BytesIO(begin)
        self.size = 0

    def read(self, size: int, /) -> bytes:
        assert self.size < 64 << 20, "it is read on and on"
        self.size += size
        return self._begin.read(size).ljust(size, b"\0")


@pytest.mark.parametrize("kind", [b"x", b"g", b"X", b"L", b"K"])
def test_a_header_that_does_not_end_is_not_read(tmp_path: Path, kind: bytes) -> None:
    """It was read into memory as a whole: a workspace could fill that of a user's own machine."""
    source = Endless(header(kind, 1 << 32))
    with pytest.raises(ValueError, match="too long"):
        tars.unpack(source, str(tmp_path), "r|")
    assert os.listdir(tmp_path) == []


def test_headers_for_all_members_do_not_add_up(tmp_path: Path) -> None:
    """Each member has a copy of all of them: 20 MB with ten thousand of both took gigabytes."""
    parts = []
    for number in range(300):
        record = b"19 key%05d=%06d\n" % (number, number)
        assert len(record) == 19
        parts += [header(tarfile.XGLTYPE, len(record)), record.ljust(512, b"\0"), member(f"f{number}").tobuf()]
        parts.append(b"evil".ljust(512, b"\0"))
    with pytest.raises(ValueError, match="too long"):
        tars.unpack(io.BytesIO(b"".join(parts)), str(tmp_path), "r|")


def test_usual_headers_are_read(tmp_path: Path) -> None:
    made = io.BytesIO()
    names = ["long" * 60, "ü" * 100]
    for form in (tarfile.PAX_FORMAT, tarfile.GNU_FORMAT):
        with tarfile.open(fileobj=made, mode="w", format=form, pax_headers={"comment": "0" * 40}) as archive:
            for name in names:
                archive.addfile(member(name), io.BytesIO(b"evil"))
        made.seek(0)
        assert tars.unpack(made, str(tmp_path), "r|") == 2
        assert sorted(os.listdir(tmp_path)) == sorted(names)
        made = io.BytesIO()
