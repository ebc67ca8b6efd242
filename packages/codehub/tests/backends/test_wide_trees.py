"""Trees whose owner made them as wide and as deep as a disk allows: no step of ours takes memory for each entry."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from codehub.adapters.filesystem import dir_cursor, hard_links, remove
from codehub.adapters.filesystem import walk as walking
from codehub.adapters.filesystem.copy import IncompleteCopy, copy_tree
from codehub.adapters.filesystem.dir_cursor import DirCursor, look_into
from codehub.adapters.filesystem.ownership import own
from codehub.adapters.filesystem.remove import remove_tree
from codehub.adapters.filesystem.walk import walk
from codehub.adapters.homes.space import tree_bytes
from codehub.adapters.homes.usage import disk_usage
from codehub.adapters.tarball import format as tar
from codehub.adapters.tarball import pack
from codehub.adapters.tarball.pack import Packed, pack_tree
from codehub.adapters.tarball.unpack import unpack_tree
from codehub.domain.errors import Terminal

FEW, MANY = 1_000, 3_000
# What a list of only the names of the other 2,000 would take is more.
MOST_GROWTH = 100_000


def _packed(root: Path) -> None:
    for _ in pack_tree(root, Packed()):
        pass


STEPS: dict[str, Callable[[Path], object]] = {
    "archive": _packed,
    "measure": lambda root: disk_usage(root, threading.Event()),
    "estimate": tree_bytes,
    "own": lambda root: own(root, os.geteuid() + 1),
    "copy": lambda root: copy_tree(root, root.with_name("copy")),
    "remove": remove_tree,
}


def peak(step: Callable[[], object]) -> int:
    tracemalloc.start()
    try:
        step()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def wide(root: Path, count: int, kind: str) -> Path:
    """One directory in a second one, so that listings are nested."""
    inside = root / "inside"
    inside.mkdir(parents=True)
    fd = os.open(inside, os.O_RDONLY)
    for number in range(count):
        if kind == "directories":
            os.mkdir(f"an entry with a name {number:06}", dir_fd=fd)
        else:
            os.close(os.open(f"an entry with a name {number:06}", os.O_CREAT | os.O_WRONLY, dir_fd=fd))
    os.close(fd)
    return root


@pytest.mark.needs("root")
@pytest.mark.parametrize("kind", ["files", "directories"])
@pytest.mark.parametrize("name", STEPS)
def test_a_directory_with_more_entries_takes_no_more_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, kind: str
) -> None:
    monkeypatch.setattr(pack, "CHUNK", 64 << 10)
    step = STEPS[name]
    few, many = (wide(tmp_path / str(count) / "home", count, kind) for count in (FEW, MANY))
    step(wide(tmp_path / "first" / "home", 10, kind))  # imports and caches
    before = peak(lambda: step(few))
    assert peak(lambda: step(many)) < before + MOST_GROWTH


def test_an_archive_with_more_directories_takes_no_more_memory(tmp_path: Path) -> None:
    def made(count: int) -> Iterator[bytes]:
        for number in range(count):
            yield tar.encode(tar.Entry(b"./a directory %06d" % number, tar.DIR, 0o755, os.geteuid(), os.getegid()))
        yield tar.END

    def unpack(count: int) -> int:
        (tmp_path / str(count)).mkdir()
        return peak(lambda: unpack_tree(made(count), tmp_path / str(count)))

    unpack(10)
    before = unpack(FEW)
    assert unpack(MANY) < before + MOST_GROWTH


@pytest.fixture(params=["names are kept", "too many names to keep", "some names are kept"])
def kept(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """What is remembered of directories that are closed while what is below them is walked."""
    if request.param != "names are kept":
        monkeypatch.setattr(walking, "_MOST_KEPT", 0 if request.param.startswith("too") else 2_000)
    return str(request.param)


@pytest.fixture
def forgetful(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system on which a position in a listing counts only for the descriptor that it was read from, as on FUSE."""
    real = os.lseek

    def lseek(fd: int, position: int, whence: int) -> int:
        if whence == os.SEEK_SET and position and stat.S_ISDIR(os.fstat(fd).st_mode):
            return real(fd, 0, whence) if position % 2 else real(fd, 2**63 - 1, whence)
        return real(fd, position, whence)

    monkeypatch.setattr(os, "lseek", lseek)


def test_no_entry_is_skipped_or_repeated_where_positions_in_listings_do_not_last(
    tmp_path: Path, forgetful: None
) -> None:
    count = nested_with_siblings(tmp_path)
    packed = Packed()
    for _ in pack_tree(tmp_path, packed):
        pass
    assert packed.entries == count


@pytest.mark.parametrize("kept", ["too many names to keep"], indirect=True)
def test_an_archive_in_which_an_entry_may_be_missing_fails(tmp_path: Path, forgetful: None, kept: str) -> None:
    nested_with_siblings(tmp_path)
    with pytest.raises(OSError, match="the entries of a directory changed"):
        _packed(tmp_path)
    if os.geteuid() != 0:
        return
    with pytest.raises(OSError, match="the entries of a directory changed"):
        own(tmp_path, os.geteuid() + 1)


def nested_with_siblings(root: Path) -> int:
    """Make 100 levels of two directories and two files each. Returns the number of entries, including the root."""
    for _ in range(100):
        for name in ("a", "b"):
            (root / name).mkdir()
            (root / f"file-{name}").touch()
        root = root / "a"
    return 401


@pytest.mark.usefixtures("kept")
def test_every_entry_is_seen_once_at_any_width_and_depth(tmp_path: Path) -> None:
    """Also in directories that are closed while what is below them is walked."""
    expected, here = {"."}, tmp_path
    for level in range(100):
        for number in range(3):
            (here / f"d{number}").mkdir()
            (here / f"f{number}").touch()
        expected |= {os.path.relpath(here / f"{kind}{number}", tmp_path) for kind in "df" for number in range(3)}
        here = here / f"d{level % 3}"
    wide(here / "wide", 1_500, "files")
    expected |= {os.path.relpath(path, tmp_path) for path in (here / "wide", *(here / "wide").rglob("*"))}
    packed = Packed()
    names = []
    for chunk in pack_tree(tmp_path, packed):
        names += [
            chunk[at : at + 512].split(b"\0")[0] for at in range(0, len(chunk), 512) if chunk[at : at + 1] == b"."
        ]
    assert packed.entries == len(expected)


def deep(root: Path, levels: int) -> None:
    root.mkdir(parents=True, exist_ok=True)
    with DirCursor(root) as at:
        for _ in range(levels):
            at.enter("d", make=True)


def test_a_tree_of_any_depth_is_removed_with_few_levels_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "home"
    for place in (root, root / "d/d/e", root / "f"):
        deep(place, 700)
    monkeypatch.setattr(remove, "_DEEPEST", 500)
    monkeypatch.setattr(dir_cursor, "_MOST_LEVELS", 510)
    remove_tree(root)
    assert not root.exists()


@pytest.fixture(params=["moving is refused", "lower layer of an overlay"])
def unmovable(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A deep tree whose directories cannot be moved to its top, as with another project of a quota or on a full disk."""
    lower, mounted = tmp_path / "lower", tmp_path / "mounted"
    for place in (lower / "home", lower / "home/d/d/e", lower / "home/f"):
        deep(place, 150)
        (place / "file").touch()
    if request.param == "moving is refused":

        def refused(*names: object, **directories: object) -> None:
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))

        monkeypatch.setattr(os, "rename", refused)
        yield lower / "home"
        return
    for place in (mounted, tmp_path / "upper", tmp_path / "work"):
        place.mkdir()
    options = f"lowerdir={lower},upperdir={tmp_path}/upper,workdir={tmp_path}/work,redirect_dir=off"
    subprocess.run(["mount", "-t", "overlay", "overlay", "-o", options, mounted], check=True)
    try:
        yield mounted / "home"
    finally:
        subprocess.run(["umount", "-l", mounted], check=True)


@pytest.mark.needs("root")
def test_a_deep_tree_is_removed_where_its_directories_cannot_be_moved(
    unmovable: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remove, "_DEEPEST", 40)
    monkeypatch.setattr(dir_cursor, "_MOST_LEVELS", 50)
    remove_tree(unmovable)
    assert not unmovable.exists()


def test_a_tree_that_is_too_deep_is_unknown_or_incomplete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deep(tmp_path / "home", 60)
    monkeypatch.setattr(dir_cursor, "_MOST_LEVELS", 50)
    assert disk_usage(tmp_path / "home", threading.Event()) is None
    with pytest.raises(IncompleteCopy, match="too deep"):
        copy_tree(tmp_path / "home", tmp_path / "copy")


def test_files_with_several_names_are_remembered_up_to_a_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "home"
    root.mkdir()
    for number in range(20):
        (root / f"{number}").touch()
        os.link(root / f"{number}", root / f"{number} again")
    monkeypatch.setattr(hard_links, "_MOST_BYTES", 20 * (hard_links._BESIDE_PATH + 500))
    _packed(root)
    monkeypatch.setattr(hard_links, "_MOST_BYTES", 20 * hard_links._BESIDE_PATH)
    with pytest.raises(Terminal, match="hard links"):
        _packed(root)
    with pytest.raises(IncompleteCopy, match="hard links"):
        copy_tree(root, tmp_path / "copy")


def test_a_sparse_file_has_a_bounded_number_of_holes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "home"
    root.mkdir()
    with open(root / "sparse", "wb") as file:
        for number in range(10):
            file.seek(number << 20)
            file.write(b"data")
    monkeypatch.setattr(pack, "MAX_SEGMENTS", 10)
    _packed(root)
    monkeypatch.setattr(pack, "MAX_SEGMENTS", 9)
    with pytest.raises(Terminal, match=r"sparse.*more than 9 holes"):
        _packed(root)


def test_extended_attributes_are_refused_before_a_header_is_too_large_to_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once such an archive was stored, and refused when it was read back, at every attempt."""
    assert pack._MAX_XATTRS < tar.MAX_PAX
    (tmp_path / "file").touch()
    for number in range(3):
        os.setxattr(tmp_path / "file", f"user.{number}", b"x" * 500)
    _packed(tmp_path)
    monkeypatch.setattr(pack, "_MAX_XATTRS", 1_400)
    with pytest.raises(Terminal, match=r"file.*extended attributes"):
        _packed(tmp_path)


def test_a_walk_leaves_the_cursor_where_it_was(tmp_path: Path) -> None:
    deep(tmp_path / "home", 200)
    with DirCursor(tmp_path, open_dir=look_into) as at:
        at.enter("home")
        assert sum(1 for _ in walk(at)) == 3 * 200 + 1
        assert at.depth == 1
        assert os.path.samestat(os.fstat(at.fd), os.stat(tmp_path / "home"))


def test_another_directory_in_place_of_a_closed_one_is_noticed(tmp_path: Path) -> None:
    """Its listing would be continued at the position of the first one."""
    deep(tmp_path / "home", 80)
    with DirCursor(tmp_path / "home", open_dir=look_into) as at:
        at.goto(["d"] * 80)
        fifth = (tmp_path / "home").joinpath(*["d"] * 5)
        (fifth / "d").rename(tmp_path / "moved")
        fifth.rename(tmp_path / "replaced")
        fifth.mkdir()
        with pytest.raises(OSError, match="was replaced"):
            at.ascend(0)
