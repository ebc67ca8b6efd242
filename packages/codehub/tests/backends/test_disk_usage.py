"""Measuring a home whose content is somebody else's: links, holes, depth, and a tree that changes meanwhile."""

from __future__ import annotations

import contextlib
import os
import subprocess
import threading
from pathlib import Path

import pytest

from codehub.adapters.filesystem import dir_cursor
from codehub.adapters.filesystem.dir_cursor import DirCursor, look_into
from codehub.adapters.filesystem.remove import remove_tree
from codehub.adapters.homes import usage
from codehub.adapters.homes.local_dir import LocalDirHomes
from codehub.adapters.homes.usage import disk_usage
from codehub.adapters.objectstore.store import Store
from codehub.domain.errors import BackendDown
from codehub.ports.fence import no_fence
from testing.codehub.contracts.homes import key
from testing.codehub.trees import make_rich_tree

MIB = 1 << 20


def measured(root: Path, **more: int) -> int | None:
    return disk_usage(root, threading.Event(), **more)


def test_it_counts_as_du_does(tmp_path: Path) -> None:
    make_rich_tree(tmp_path, owner=None)
    (tmp_path / "large").write_bytes(os.urandom(3 * MIB))
    os.link(tmp_path / "large", tmp_path / "the same")
    with (tmp_path / "holes").open("wb") as file:
        file.truncate(100 * MIB)
    said = subprocess.run(["du", "-s", "--block-size=1", tmp_path], capture_output=True, check=True, text=True)
    assert measured(tmp_path) == int(said.stdout.split()[0])


def test_links_lead_nowhere(tmp_path: Path) -> None:
    home, outside = tmp_path / "home", tmp_path / "outside"
    home.mkdir()
    outside.mkdir()
    (outside / "large").write_bytes(os.urandom(3 * MIB))
    (home / "directory").symlink_to(outside)
    (home / "file").symlink_to(outside / "large")
    found = measured(home)
    assert found is not None
    assert found < MIB
    (tmp_path / "link").symlink_to(outside)
    assert measured(tmp_path / "link") is None, "not even the home itself"


def test_a_directory_that_becomes_a_link_or_vanishes_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, outside = tmp_path / "home", tmp_path / "outside"
    for made in (home / "swapped", home / "gone", home / "kept", outside):
        made.mkdir(parents=True)
    for file in (outside / "large", home / "kept" / "large"):
        file.write_bytes(os.urandom(3 * MIB))

    def swap_first(name: str | Path, dir_fd: int | None = None) -> int:
        if name == "swapped":
            (home / "swapped").rmdir()
            (home / "swapped").symlink_to(outside)
        if name == "gone":
            (home / "gone").rmdir()
        return look_into(name, dir_fd)

    monkeypatch.setattr(usage, "look_into", swap_first)
    found = measured(home)
    assert found is not None
    assert 3 * MIB <= found < 4 * MIB


def nested(root: Path, depth: int, name: bytes = b"file", content: bytes = b"") -> None:
    at = os.open(root, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("d", dir_fd=at)
        below = os.open("d", os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = below
    with os.fdopen(os.open(name, os.O_WRONLY | os.O_CREAT, dir_fd=at), "wb") as file:
        file.write(content)
    os.close(at)


def test_a_deep_tree_is_measured_with_few_open_files(tmp_path: Path) -> None:
    nested(tmp_path, 1500, b"large", os.urandom(3 * MIB))
    found = measured(tmp_path)
    remove_tree(tmp_path / "d")  # pytest cannot
    assert found is not None
    assert found >= 3 * MIB


def test_leaving_a_deep_tree_takes_one_step_for_each_level(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[object] = []

    def counted(name: str | Path, dir_fd: int | None = None) -> int:
        opened.append(name)
        return look_into(name, dir_fd)

    monkeypatch.setattr(usage, "look_into", counted)
    monkeypatch.setattr(dir_cursor, "look_into", counted)
    nested(tmp_path, depth := 1_000)
    found = measured(tmp_path)
    remove_tree(tmp_path / "d")  # pytest cannot
    assert found is not None
    assert len(opened) < 3 * depth, "from the root, it is more the deeper the tree is: hours at a million levels"


def test_a_directory_that_was_moved_is_left_to_where_it_was_entered_from(tmp_path: Path) -> None:
    """Not to where it is now: `..` would lead there."""
    home, outside = tmp_path / "home", tmp_path / "outside"
    (outside / "d").mkdir(parents=True)
    home.mkdir()
    nested(home, depth := 100)
    (home / "d" / "d" / "mark").touch()
    with DirCursor(home, open_dir=look_into) as at:
        for _ in range(depth):
            at.enter("d")
        os.rename(home / "d" / "d" / "d", outside / "d" / "d")
        (home / "d" / "d" / "d").mkdir()
        while at.depth > 2:
            at.leave()
        assert "mark" in os.listdir(at.fd)
    for top in (home, outside):
        remove_tree(top)


def test_what_is_not_bounded_or_cannot_be_read_is_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(600):
        (tmp_path / f"{number}").mkdir()
    assert measured(tmp_path, most=600) is not None
    assert measured(tmp_path, most=599) is None
    cancelled = threading.Event()
    cancelled.set()
    assert disk_usage(tmp_path, cancelled) is None
    assert measured(tmp_path / "missing") is None
    monkeypatch.setattr(usage, "_MOST_KEPT", 500)
    assert measured(tmp_path) is not None, "of directories nothing is kept"
    for number in range(501):
        (tmp_path / f"{number}/file").touch()
        os.link(tmp_path / f"{number}/file", tmp_path / f"{number}/same")
    assert measured(tmp_path) is None


async def test_a_disk_that_is_not_there_is_down_and_not_empty(tmp_path: Path) -> None:
    homes = LocalDirHomes(tmp_path / "homes", Store((tmp_path / "archives").as_uri()))
    with pytest.raises(BackendDown):
        await homes.size(key())


@pytest.mark.needs("root")
async def test_a_home_on_a_full_disk_is_measured_like_any_other(tmp_path: Path) -> None:
    """When people look at sizes most: to measure writes nothing."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", tmp_path], check=True)
    try:
        homes = LocalDirHomes(tmp_path / "homes", Store((tmp_path / "archives").as_uri()))
        await homes.provision(key(), "inc-1", no_fence)
        with Path(homes.mount(key()).source, "filler").open("wb", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(bytes(4096))
        with pytest.raises(OSError, match="No space left"):
            (tmp_path / "one more").write_bytes(bytes(4096))
        found = await homes.size(key())
        assert found is not None
        assert 2 * MIB < found <= 4 * MIB
    finally:
        subprocess.run(["umount", "--lazy", tmp_path], check=True)
