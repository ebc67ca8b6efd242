"""Homes whose directories are swapped for links while a privileged part of CodeHub reads, measures, owns or removes them.

A program of the workspace exchanges a directory and a link to somebody else's directory, thousands of times. Nothing of the
other directory is read, and nothing in it changes.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from codehub.adapters.filesystem.dir_cursor import open_dir
from codehub.adapters.filesystem.ownership import own
from codehub.adapters.filesystem.remove import remove_tree
from codehub.adapters.homes.space import tree_bytes
from codehub.adapters.homes.usage import disk_usage
from codehub.adapters.tarball.pack import Packed, pack_tree
from codehub.domain.errors import CodeHubError

SECRET, OWN = b"somebody else's secret", b"the home's own content"
TIMEOUT_S = 120
SWAPS, RUNS = 2_000, 40
ANOTHER_UID = 1_234_567_890
# Exchanges each pair of names in the directory, and counts in a file.
SWAPPER = """
import ctypes, os, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
os.chdir(sys.argv[1])
counter = os.open(sys.argv[2], os.O_WRONLY)
pairs = [name.encode() for name in sys.argv[3:]]
count = 0
while True:
    for name in pairs:
        libc.renameat2(-100, name, -100, name + b".link", 2)
    count += 1
    os.pwrite(counter, struct.pack("=Q", count), 0)
"""


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    made = tmp_path / "victim"
    (made / "sub").mkdir(parents=True)
    (made / "sub/secret").write_bytes(SECRET)
    (made / "secret").write_bytes(SECRET)
    (made / "sub").chmod(0o750)
    made.chmod(0o700)
    return made


def state_of(victim: Path) -> list[tuple[str, int, int, int]]:
    paths = [victim, *sorted(victim.rglob("*"))]
    return [(path.name, (found := path.lstat()).st_mode, found.st_uid, found.st_nlink) for path in paths]


@contextlib.contextmanager
def swapping(home: Path, victim: Path, tmp_path: Path) -> Iterator[Callable[[], int]]:
    """Yield how often the directories were swapped so far."""
    for name in ("one", "two"):
        (home / name / "sub").mkdir(parents=True)
        (home / name / "sub/secret").write_bytes(OWN)
        (home / name / "secret").write_bytes(OWN)
        (home / f"{name}.link").symlink_to(victim)
    (home / "one/sub.link").symlink_to(victim / "sub")
    (home / "tool").write_bytes(OWN)
    (home / "tool").chmod(0o4755)
    (home / "tool.link").symlink_to(victim / "secret")
    counter = tmp_path / "counter"
    counter.write_bytes(bytes(8))
    words = [sys.executable, "-c", SWAPPER, str(home), str(counter), "one", "two", "one/sub", "tool"]
    process = subprocess.Popen(words)
    try:
        yield lambda: int.from_bytes(counter.read_bytes(), sys.byteorder)
    finally:
        process.kill()
        process.wait()


def until_swapped(swaps: Callable[[], int], work: Callable[[], None]) -> None:
    deadline, begun, runs = time.monotonic() + TIMEOUT_S, swaps(), 0
    while runs < RUNS or swaps() - begun < SWAPS:
        assert time.monotonic() < deadline, (runs, swaps())
        with contextlib.suppress(OSError, CodeHubError):  # what changes meanwhile may fail
            work()
        runs += 1


def test_an_archive_has_nothing_of_another_directory(victim: Path, tmp_path: Path) -> None:
    home, before = tmp_path / "home", state_of(victim)
    home.mkdir()
    own_files = 0

    def archive() -> None:
        nonlocal own_files
        for chunk in pack_tree(home, Packed()):
            assert SECRET not in chunk
            own_files += chunk.count(OWN)

    with swapping(home, victim, tmp_path) as swaps:
        until_swapped(swaps, archive)
    assert own_files > 0, "its own files are archived"
    assert state_of(victim) == before


def test_a_size_has_nothing_of_another_directory(victim: Path, tmp_path: Path) -> None:
    (victim / "sub/large").write_bytes(bytes(8 << 20))
    home, before = tmp_path / "home", state_of(victim)
    home.mkdir()

    def measure() -> None:
        for found in (disk_usage(home, threading.Event()), tree_bytes(home)):
            assert found is None or found < 8 << 20

    with swapping(home, victim, tmp_path) as swaps:
        until_swapped(swaps, measure)
    assert state_of(victim) == before


@pytest.mark.needs("root")
def test_another_directory_gets_no_other_owner(victim: Path, tmp_path: Path) -> None:
    home, before = tmp_path / "home", state_of(victim)
    home.mkdir()

    def give() -> None:
        try:
            own(home, ANOTHER_UID)
        finally:
            os.chown(home, 0, 0)
        assert state_of(victim) == before

    with swapping(home, victim, tmp_path) as swaps:
        until_swapped(swaps, give)
    assert state_of(victim) == before


@pytest.mark.needs("root")
def test_a_file_that_becomes_a_link_while_it_is_owned_gives_its_mode_to_no_other(
    victim: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, before = tmp_path / "home", state_of(victim)
    home.mkdir()
    (home / "tool").write_bytes(OWN)
    (home / "tool").chmod(0o4755)
    chown = os.chown

    def chown_and_swap(path: str, uid: int, gid: int, *, dir_fd: int, follow_symlinks: bool) -> None:
        chown(path, uid, gid, dir_fd=dir_fd, follow_symlinks=follow_symlinks)
        (home / "tool").unlink()
        (home / "tool").symlink_to(victim / "secret")

    monkeypatch.setattr(os, "chown", chown_and_swap)
    with contextlib.suppress(OSError):
        own(home, ANOTHER_UID)
    assert state_of(victim) == before


def test_removing_a_home_removes_nothing_of_another_directory(victim: Path, tmp_path: Path) -> None:
    before = state_of(victim)
    for number in range(5):
        home = tmp_path / f"home-{number}"
        home.mkdir()
        with swapping(home, victim, tmp_path) as swaps:
            begun, deadline = swaps(), time.monotonic() + TIMEOUT_S
            while swaps() - begun < SWAPS // 10:
                assert time.monotonic() < deadline
            remove_tree(home)
        assert not home.exists()
        assert state_of(victim) == before


@pytest.fixture
def open_place() -> Iterator[Path]:
    """A directory that every user can reach."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as made:
        Path(made).chmod(0o711)
        yield Path(made)


# As a user who may not enter the directory, so that its mode is changed to open it.
OPENER = """
import os, sys
from codehub.adapters.filesystem.dir_cursor import open_dir
os.setgroups([]); os.setgid(65534); os.setuid(65534)
for _ in range(int(sys.argv[2])):
    try:
        os.close(open_dir(sys.argv[1]))
    except OSError:
        pass
"""


@pytest.mark.needs("root")
def test_opening_a_directory_changes_no_mode_of_another(open_place: Path) -> None:
    """Where CodeHub is not root, its user owns all homes, and changes the mode of what its owner made unreadable."""
    home, victim, counter = open_place / "home", open_place / "victim", open_place / "counter"
    for place in (home, victim, home / "one"):
        place.mkdir()
        os.chown(place, 65534, 65534)
    (home / "one").chmod(0)
    victim.chmod(0o500)
    (home / "one.link").symlink_to(victim)
    counter.write_bytes(bytes(8))
    swapper = subprocess.Popen([sys.executable, "-c", SWAPPER, str(home), str(counter), "one"])
    seen: set[int] = set()
    try:
        opener = subprocess.Popen([sys.executable, "-c", OPENER, str(home / "one"), "30000"])
        while opener.poll() is None:
            seen.add(victim.stat().st_mode & 0o777)
        assert opener.returncode == 0
    finally:
        swapper.kill()
        swapper.wait()
    assert seen == {0o500}


def test_a_directory_that_its_owner_made_unreadable_is_opened_and_keeps_its_mode(tmp_path: Path) -> None:
    (tmp_path / "closed").mkdir(mode=0o700)
    (tmp_path / "closed").chmod(0)
    os.close(open_dir(tmp_path / "closed"))
    assert (tmp_path / "closed").stat().st_mode & 0o777 == 0
