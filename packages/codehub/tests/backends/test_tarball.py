"""Trees through our tar, GNU tar and Python's: the same tree comes out, and nothing outside it is ever touched."""

from __future__ import annotations

import io
import os
import shutil
import socket
import subprocess
import tarfile
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codehub.adapters.feature_files import files_of
from codehub.adapters.filesystem.remove import remove_tree
from codehub.adapters.tarball import format as tar
from codehub.adapters.tarball.pack import MAX_DEPTH, MAX_PATH, Packed, pack_tree
from codehub.adapters.tarball.read import TarStream
from codehub.adapters.tarball.retar import out_of, renamed
from codehub.adapters.tarball.unpack import unpack_tree
from codehub.domain.errors import ArchiveCorrupted, Terminal
from testing.codehub.trees import differences, fingerprint, make_rich_tree

AS_ROOT = os.geteuid() == 0


# cap_setuid=ep, as setcap writes it.
CAPABLE = {"security.capability": bytes.fromhex("0100000280000000000000000000000000000000")}


def made(path: Path) -> Path:
    path.mkdir(parents=True)
    return path


@pytest.fixture
def rich(tmp_path: Path) -> Path:
    root = made(tmp_path / "rich")
    make_rich_tree(root, owner=(1_234_567_890, 54_321) if AS_ROOT else None)
    return root


def test_everything_a_home_can_hold_comes_back_bit_by_bit(rich: Path, tmp_path: Path) -> None:
    before = fingerprint(rich)
    packed = Packed()
    stream = b"".join(pack_tree(rich, packed))
    assert packed.tar_bytes == len(stream)
    out = made(tmp_path / "out")
    assert unpack_tree([stream], out, len(stream)) == packed.entries
    assert differences(before, fingerprint(out)) == []
    assert fingerprint(rich) == before, "packing reads only"


@pytest.mark.parametrize("size", [511, 512, 513, 65_536])
def test_a_stream_cut_into_any_pieces_is_the_same_stream(rich: Path, tmp_path: Path, size: int) -> None:
    stream = b"".join(pack_tree(rich / "src", Packed()))[: 1 << 20]
    whole = [(e.name, e.size, e.link) for e in _entries([stream])]
    pieces = [stream[at : at + size] for at in range(0, len(stream), size)]
    assert [(e.name, e.size, e.link) for e in _entries(pieces)] == whole


def _entries(chunks: list[bytes]) -> list[tar.Entry]:
    found: list[tar.Entry] = []
    stream = iter(TarStream(chunks))
    with pytest.raises(ArchiveCorrupted, match="ends in the middle"):
        found.extend(iter(lambda: next(stream), None))
    return found


def test_gnu_tar_and_python_read_what_we_write(rich: Path, tmp_path: Path) -> None:
    archive = tmp_path / "ours.tar"
    archive.write_bytes(b"".join(pack_tree(rich, Packed())))
    out = made(tmp_path / "gnu")
    subprocess.run(["tar", "-xpf", archive, "-C", out, "--xattrs", "--xattrs-include=user.*"], check=True)
    assert differences(fingerprint(rich), fingerprint(out)) == []
    with tarfile.open(archive) as opened:
        assert len(opened.getmembers()) == sum(len(d) + len(f) for _, d, f in os.walk(rich)) + 1


@pytest.mark.parametrize("form", ["gnu", "pax"])
def test_we_read_what_gnu_tar_writes(rich: Path, tmp_path: Path, form: str) -> None:
    made_by_gnu = subprocess.run(
        [
            "tar",
            "-cf",
            "-",
            f"--format={form}",
            *(["--xattrs", "--sparse"] if form == "pax" else []),
            "-C",
            rich,
            ".",
        ],
        check=True,
        capture_output=True,
    ).stdout
    out = made(tmp_path / "out")
    unpack_tree([made_by_gnu], out)
    exact = form == "pax"
    assert differences(fingerprint(rich, exact=exact), fingerprint(out, exact=exact)) == []


def test_sockets_are_left_out_and_five_hundred_levels_are_not_too_deep(tmp_path: Path) -> None:
    root = made(tmp_path / "deep")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(root / "s"))
    fd = os.open(root, os.O_RDONLY)
    for _ in range(500):
        os.mkdir("directory", dir_fd=fd)
        below = os.open("directory", os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = below
    os.close(os.open("bottom", os.O_CREAT | os.O_WRONLY, dir_fd=fd))
    os.close(fd)
    packed = Packed()
    out = made(tmp_path / "out")
    unpack_tree(list(pack_tree(root, packed)), out)
    assert packed.entries == 502
    again = Packed()
    for _ in pack_tree(out, again):
        pass
    assert again.entries == 502
    remove_tree(root)
    remove_tree(out)
    assert not root.exists()


def entry(name: bytes, kind: bytes = tar.FILE, content: bytes = b"", **more: object) -> bytes:
    head = tar.encode(tar.Entry(name, kind, size=len(content), **more))  # type: ignore[arg-type]
    return head + content + bytes(tar.padding(len(content)))


def pax(key: bytes, value: bytes) -> bytes:
    return entry(b"x", tar.PAX, tar._record(key, value))


def sized(kind: bytes, size: int) -> bytes:
    """A header whose size is in GNU's binary form, which may be negative."""
    head = tar.encode(tar.Entry(b"a", kind))
    head = head[:124] + size.to_bytes(12, "big", signed=True) + head[136:148] + b" " * 8 + head[156:]
    return head[:148] + b"%06o\0 " % sum(head) + head[156:]


HOSTILE = {
    "absolute name": [entry(b"/tmp/codehub-hostile", content=b"x")],
    "dot-dot": [entry(b"../outside/new", content=b"x")],
    "dot-dot inside": [entry(b"a/../../outside/new", content=b"x")],
    "write through a link": [entry(b"out", tar.SYMLINK, link=b"../outside"), entry(b"out/victim", content=b"x")],
    "directory over a link": [
        entry(b"out", tar.SYMLINK, link=b"../outside"),
        entry(b"out", tar.DIR, mode=0o777),
        entry(b"out/victim", content=b"x"),
    ],
    "hard link out": [entry(b"h", tar.LINK, link=b"../outside/victim")],
    "hard link absolute": [entry(b"h", tar.LINK, link=b"/etc/passwd")],
    "hard link through a link": [
        entry(b"out", tar.SYMLINK, link=b"../outside"),
        entry(b"h", tar.LINK, link=b"out/victim"),
    ],
    "a name twice": [entry(b"a", content=b"1"), entry(b"a", content=b"2")],
    "a name of 300 characters": [entry(b"n" * 300, content=b"x")],
    "a name with a zero byte": [entry(b"a" * 120 + b"\0b", content=b"x")],
    "a file as a directory": [entry(b"a", content=b"1"), entry(b"a/b", content=b"2")],
    "an unknown kind": [entry(b"a", b"Z")],
    "a header of 9 MB": [entry(b"x", tar.PAX, bytes(9 << 20))],
    "a damaged pax record": [entry(b"x", tar.PAX, b"999 path=a\n"), entry(b"a")],
    "a negative size": [entry(b"x", tar.PAX, b"12 size=-12\n"), entry(b"a")],
    "a negative size in binary": [sized(tar.DEVICES[0], -512)],
    "a header of negative size": [sized(tar.PAX, -512)],
    "a time beyond all years": [pax(b"mtime", b"9" * 30), entry(b"a")],
    "a directory's time": [pax(b"mtime", b"9" * 30), entry(b"a", tar.DIR)],
    "a size beyond all disks": [entry(b"a", content=b"1\n0\n0\n".ljust(512, b"\0"), sparse_size=10**30)],
    "a sparse map with a number of 5,000 digits": [
        entry(b"a", content=(b"1" * 5_000 + b"\n").ljust(5_120, b"\0"), sparse_size=1)
    ],
    "a root that is a file": [entry(b".", content=b"x")],
}


@pytest.mark.parametrize("what", HOSTILE)
def test_a_hostile_archive_harms_nothing(what: str, tmp_path: Path) -> None:
    outside = made(tmp_path / "outside")
    (outside / "victim").write_bytes(b"untouched")
    (outside / "victim").chmod(0o640)
    before = fingerprint(outside)
    root = made(tmp_path / "root")
    with pytest.raises(ArchiveCorrupted):
        unpack_tree([*HOSTILE[what], tar.END], root)
    assert fingerprint(outside) == before
    assert (outside / "victim").stat().st_nlink == 1
    assert not Path("/tmp/codehub-hostile").exists()


def test_a_feature_of_a_workspace_cannot_keep_the_coordinator_busy() -> None:
    """It is read on the event loop: a reader that goes back to the same header would stop everything."""
    for kind in (tar.PAX, tar.DEVICES[0]):
        with pytest.raises(ArchiveCorrupted):
            files_of(sized(kind, -512) + tar.END, "a feature")


def test_devices_are_left_out_and_outward_links_are_only_links(tmp_path: Path) -> None:
    root = made(tmp_path / "root")
    unpack_tree(
        [
            entry(b"dev", b"3"),
            entry(b"blk", b"4"),
            entry(b"l", tar.SYMLINK, link=b"/etc/passwd", mode=0o777),
            tar.END,
        ],
        root,
    )
    assert os.listdir(root) == ["l"]
    assert os.readlink(root / "l") == "/etc/passwd"


@pytest.mark.needs("root")
@pytest.mark.parametrize("uid", [0, 54_321])
def test_set_uid_and_set_gid_files_lose_the_bit_whoever_owns_them(uid: int, tmp_path: Path) -> None:
    """A forged archive could name another workspace's user as the owner."""
    root = made(tmp_path / "root")
    forged = tar.encode(
        tar.Entry(name=b"./su", kind=tar.FILE, mode=0o6755, uid=uid, gid=uid, mtime_ns=0, xattrs=CAPABLE)
    )
    unpack_tree([forged, tar.END], root)
    found = (root / "su").stat()
    assert "security.capability" not in os.listxattr(root / "su")
    assert (found.st_uid, found.st_mode & 0o7777) == (uid, 0o755)


def _nested(root: Path, depth: int, name: str) -> None:
    fd = os.open(root, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir(name, dir_fd=fd)
        below = os.open(name, os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = below
    os.close(fd)


@pytest.mark.parametrize(("depth", "name", "why"), [(1_001, "d", "deep"), (40, "n" * 250, "longer than")])
def test_a_tree_that_would_make_a_huge_archive_is_refused_with_its_path(
    depth: int, name: str, why: str, tmp_path: Path
) -> None:
    root = made(tmp_path / "deep")
    _nested(root, depth, name)
    with pytest.raises(Terminal, match=why) as refused:
        for _ in pack_tree(root, Packed()):
            pass
    assert f"{name[:20]}" in str(refused.value)
    assert len(str(refused.value)) < 500
    remove_tree(root)


def test_a_stream_longer_than_was_archived_is_refused(tmp_path: Path) -> None:
    stream = entry(b"a", content=b"x" * 5_000) + tar.END
    with pytest.raises(ArchiveCorrupted, match="more than"):
        unpack_tree([stream, bytes(100_000)], made(tmp_path / "a"), len(stream))
    with pytest.raises(ArchiveCorrupted, match="middle"):
        unpack_tree([stream[:3_000]], made(tmp_path / "b"), len(stream))


@pytest.mark.parametrize("count", [100_000, pytest.param(1_000_000, marks=pytest.mark.soak)])
def test_a_million_entries_are_unpacked_with_little_memory(tmp_path: Path, count: int) -> None:
    """The same directory, and devices that are left out: a million headers, and next to nothing to show for them."""
    root = made(tmp_path / "root")
    some = b"".join(entry(b"d", tar.DIR, mode=0o755) + entry(b"d/null", b"3") for _ in range(500))
    assert unpack_tree([some] * (count // 1_000) + [tar.END], root) == count
    assert [str(path.relative_to(root)) for path in root.rglob("*")] == ["d"]
    tracemalloc.start()
    try:
        unpack_tree([some] * 20 + [tar.END], root)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < len(some), "nothing is kept for each entry"


def test_a_tree_that_is_still_written_to_is_removed(tmp_path: Path) -> None:
    root = made(tmp_path / "busy")
    writer = subprocess.Popen(
        ["sh", "-c", 'i=0; while [ $i -lt 300 ]; do mkdir -p "$0/d$i/e" && : > "$0/d$i/e/f"; i=$((i+1)); done', root],
        stderr=subprocess.DEVNULL,
    )
    try:
        while not any(root.iterdir()):
            pass
        remove_tree(root)
    finally:
        writer.wait()
    remove_tree(root)
    assert not root.exists()
    remove_tree(root)


@given(
    st.dictionaries(
        st.binary(min_size=1, max_size=40).filter(
            lambda n: b"/" not in n and b"\0" not in n and n not in (b".", b"..")
        ),
        st.tuples(st.binary(max_size=2_000), st.integers(0, 0o777), st.integers(-(10**18), 4 * 10**18)),
        max_size=6,
    )
)
def test_any_names_contents_modes_and_times_survive(files: dict[bytes, tuple[bytes, int, int]]) -> None:
    base = Path(os.environ.get("PYTEST_TMP", "/tmp")) / f"codehub-tar-{os.getpid()}"
    remove_tree(base)
    try:
        root, out = made(base / "in"), made(base / "out")
        for name, (content, mode, mtime) in files.items():
            path = os.path.join(os.fsencode(root), name)
            with open(path, "wb") as file:
                file.write(content)
            os.chmod(path, mode)
            os.utime(path, ns=(mtime, mtime))
        unpack_tree(list(pack_tree(root, Packed())), out)
        assert differences(fingerprint(root), fingerprint(out)) == []
    finally:
        remove_tree(base)


def test_python_and_ours_agree_on_a_plain_archive(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.GNU_FORMAT) as opened:
        info = tarfile.TarInfo("x" * 180 + "/" + "y" * 150)
        info.size = 3
        opened.addfile(info, io.BytesIO(b"abc"))
    out = made(tmp_path / "out")
    unpack_tree([buffer.getvalue()], out)
    assert (out / ("x" * 180) / ("y" * 150)).read_bytes() == b"abc"
    shutil.rmtree(out)


# A file in as many directories as a home on disk may have, and in one more; the longest path, and a longer one.
@pytest.mark.parametrize(
    ("path", "refused"),
    [
        (b"d/" * MAX_DEPTH + b"f", ""),
        (b"d/" * (MAX_DEPTH + 1) + b"f", "directories deep"),
        (b"x" * (MAX_PATH - 2), ""),
        (b"x" * (MAX_PATH - 1), "longer than"),
    ],
    ids=["deepest", "deeper", "longest", "longer"],
)
def test_paths_of_a_docker_volume_have_the_same_bounds(path: bytes, refused: str) -> None:
    stream = entry(b"home/" + path, content=b"x") + tar.END
    packed = Packed()
    if refused:
        with pytest.raises(Terminal, match=refused):
            list(renamed([stream], out_of(b"home"), packed))
        return
    whole = b"".join(renamed([stream], out_of(b"home"), packed))
    assert [found.name for found in TarStream([whole])] == [b"./" + path]
