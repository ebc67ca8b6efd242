"""Files and directories that their own user made unreadable, where CodeHub is that user and not root, as on Kubernetes."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from testing.codehub.trees import differences, fingerprint

pytestmark = pytest.mark.needs("root")
NOBODY = 65534
# Everything is loaded before: this user may not be able to read Python itself.
AS_NOBODY = """
import codecs, os, sys
from pathlib import Path
from codehub.adapters.filesystem.copy import copy_tree
from codehub.adapters.filesystem.dir_cursor import DirCursor
from codehub.adapters.homes.space import tree_bytes
from codehub.adapters.kubernetes.transfer_server import _of_packing
from codehub.adapters.tarball.pack import Packed, pack_tree
from codehub.adapters.tarball.unpack import unpack_tree
codecs.lookup("ascii"); codecs.lookup("utf-8")
os.setgroups([]); os.setgid(65534); os.setuid(65534)
"""
SURVIVE = f"""{AS_NOBODY}
home, out = map(Path, sys.argv[1:])
packed = Packed()
stream = b"".join(pack_tree(home, packed))
assert unpack_tree([stream], out, len(stream)) == packed.entries
assert tree_bytes(home) >= 1024 * packed.entries
"""
COPY = f"""{AS_NOBODY}
home, out = map(Path, sys.argv[1:])
copy_tree(home, out)
"""
CHANGE = f"""{AS_NOBODY}
closed = Path(sys.argv[1], "closed")
with DirCursor(closed.parent, holds=True) as at:
    at.enter("closed")
    closed.chmod(0o755)
    at.leave()
"""
MOVE = f"""{AS_NOBODY}
home = Path(sys.argv[1], "home")
with DirCursor(home, holds=True) as at:
    for _ in range(80):
        at.enter("deep")
    for depth in (5, 3):
        Path(home, *["deep"] * depth).rename(home.with_name(f"elsewhere-{{depth}}"))
"""
FAIL = f"""{AS_NOBODY}
home = Path(sys.argv[1])
assert tree_bytes(home)
try:
    list(pack_tree(home, Packed()))
except Exception as error:
    print(type(_of_packing(error)).__name__, error)
"""


def as_nobody(program: str, *args: Path) -> str:
    words = [sys.executable, "-c", program, *map(str, args)]
    return subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True).stdout


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory of this user that it can reach."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as made:
        os.chown(made, NOBODY, NOBODY)
        yield Path(made)


def give(root: Path) -> None:
    for directory, names, files in os.walk(root):
        for path in (directory, *(os.path.join(directory, name) for name in names + files)):
            os.chown(path, NOBODY, NOBODY, follow_symlinks=False)


def unreadable_tree(root: Path) -> None:
    closed = [root / name for name in ("nothing", "no-search", "no-list", "attributes")]
    for directory in closed:
        (directory / "below").mkdir(parents=True)
        (directory / "file").write_bytes(b"content")
        (directory / "link").symlink_to("file")
        os.setxattr(directory, "user.note", b"kept")
        (directory / "below/empty").mkdir()
    os.link(root / "nothing/file", root / "no-search/same")
    os.link(root / "nothing/file", root / "no-search/again")
    (root / "secret").write_bytes(b"content" * 1000)
    os.setxattr(root / "secret", "user.note", b"kept")
    os.mkfifo(root / "pipe")
    deep = root / "attributes"
    for _ in range(80):
        deep = deep / "deep"
        deep.mkdir()
        (deep / "file").write_bytes(b"content")
        closed.append(deep)
    give(root)
    for file in (root / "secret", root / "pipe", root / "nothing/file"):
        file.chmod(0)
    for directory in reversed(closed):
        directory.chmod({"no-search": 0o600, "no-list": 0o300}.get(directory.name, 0))


def test_they_are_archived_and_restored_as_they_are(place: Path) -> None:
    home, out = place / "home", place / "out"
    home.mkdir()
    unreadable_tree(home)
    out.mkdir()
    os.chown(out, NOBODY, NOBODY)
    before = fingerprint(home)
    as_nobody(SURVIVE, home, out)
    assert differences(before, fingerprint(out)) == []
    assert fingerprint(home) == before, "their modes are as before"


def test_they_are_backed_up_as_they_are(place: Path) -> None:
    home, out = place / "home", place / "out"
    home.mkdir()
    unreadable_tree(home)
    before = fingerprint(home)
    as_nobody(COPY, home, out)
    assert differences(before, fingerprint(out)) == []
    assert fingerprint(home) == before, "their modes are as before"
    as_nobody(COPY, out, place / "restored")
    assert differences(before, fingerprint(place / "restored")) == []


def test_a_mode_that_its_user_sets_meanwhile_stays(place: Path) -> None:
    """Workspaces run while they are backed up."""
    closed = place / "closed"
    closed.mkdir(mode=0)
    os.chown(closed, NOBODY, NOBODY)
    as_nobody(CHANGE, place)
    assert stat.S_IMODE(closed.stat().st_mode) == 0o755


def test_modes_are_as_before_if_directories_were_moved_meanwhile(place: Path) -> None:
    home = place / "home"
    home.joinpath(*["deep"] * 80).mkdir(parents=True)
    give(home)
    home.chmod(0o300)
    as_nobody(MOVE, place)
    assert stat.S_IMODE(home.stat().st_mode) == 0o300


def test_a_home_that_is_closed_itself_is_archived(place: Path) -> None:
    home, out = place / "home", place / "out"
    for root in (home, out):
        root.mkdir()
        os.chown(root, NOBODY, NOBODY)
    (home / "file").write_bytes(b"content")
    give(home)
    home.chmod(0)
    before = fingerprint(home)
    as_nobody(SURVIVE, home, out)
    assert differences(before, fingerprint(out)) == []
    assert fingerprint(home) == before


@pytest.mark.parametrize("kind", ["file", "directory"])
def test_what_belongs_to_another_user_is_named(place: Path, kind: str) -> None:
    """As a container in the workspace may leave it. The workspace can be started to change that."""
    home = place / "home"
    (home / "data").mkdir(parents=True)
    give(home)
    mine = home / "data/of another"
    mine.mkdir() if kind == "directory" else mine.touch()
    mine.chmod(0)
    said = as_nobody(FAIL, home)
    assert said.startswith("Terminal the home cannot be archived: 'data/of another' cannot be read")
    assert "Start the workspace" in said


def test_on_a_volume_that_is_mounted_read_only_they_need_another_mount(place: Path) -> None:
    home = place / "home"
    (home / "closed").mkdir(parents=True)
    (home / "closed/file").touch()
    give(home)
    (home / "closed").chmod(0o600)
    before = fingerprint(home)
    subprocess.run(["mount", "--bind", home, home], check=True)
    try:
        subprocess.run(["mount", "-o", "remount,bind,ro", home], check=True)
        assert as_nobody(FAIL, home).startswith("NeedsWriting")
    finally:
        subprocess.run(["umount", "-l", home], check=True)
    assert fingerprint(home) == before
