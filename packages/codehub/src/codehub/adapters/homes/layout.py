"""The layout of a local-dir home on the disk: `HOMES_DIR/{home_store_key}/` contains `ctx.json` and `files/`.

    …/{id}/home/              complete or absent: it appears and disappears by one rename
    …/{id}/.staging-{inc}/    being created or restored; becomes `home`
    …/{id}/.trash-{inc}/      was `home`; being removed
    …/{id}/.damaged-{n}/      a `home` whose ctx could not be read: kept until `purge`, never used

A volume contains its incarnation, so no crash can leave a partial volume where a complete one is expected.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import re
from dataclasses import dataclass
from pathlib import Path

from codehub.adapters.filesystem.remove import remove_tree
from codehub.domain.errors import Invalid
from codehub.domain.model import HomeCtx
from codehub.ports.homes import HomeKey, HomeState, HomeStatus

_LIBC = ctypes.CDLL(None, use_errno=True)  # for syncfs, which Python does not provide
FILES = "files"
CTX = "ctx.json"
STAGING, TRASH, DAMAGED = ".staging-", ".trash-", ".damaged-"
# Workspaces run as their own users and must be able to traverse to their home, but not list directories.
PASS_THROUGH = 0o711
_ABSENT = HomeStatus(HomeState.ABSENT)
_INCOMPLETE = HomeStatus(HomeState.INCOMPLETE)
_PART = r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}"
_KEY = re.compile(rf"users/{_PART}/workspaces/{_PART}/home")
_INCARNATION = re.compile(_PART)


@dataclass(frozen=True, slots=True)
class HomePaths:
    """The paths of one home."""

    box: Path
    home: Path

    @property
    def files(self) -> Path:
        return self.home / FILES

    def staging(self, incarnation: str) -> Path:
        if not _INCARNATION.fullmatch(incarnation):
            raise Invalid(f"not an incarnation: {incarnation!r}")
        return self.box / f"{STAGING}{incarnation}"

    def leftovers(self, *kinds: str) -> list[Path]:
        try:
            return sorted(entry for entry in self.box.iterdir() if entry.name.startswith(kinds))
        except FileNotFoundError:
            return []


def home_paths(root: Path, home: HomeKey) -> HomePaths:
    if not _KEY.fullmatch(home.store_key) or home.store_key.split("/")[3] != home.workspace_id:
        raise Invalid(f"not the key of {home.workspace_id}'s home: {home.store_key!r}")
    path = root / home.store_key
    return HomePaths(path.parent, path)


def inspect_home(home: Path) -> HomeStatus:
    """Return the home's status: complete if its ctx can be read and its files exist."""
    try:
        raw = (home / CTX).read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return _INCOMPLETE if home.exists() else _ABSENT
    try:
        fields = json.loads(raw)
        ctx = HomeCtx(str(fields["incarnation"]), fields.get("restore_marker"))
    except (ValueError, KeyError, TypeError, AttributeError):
        return _INCOMPLETE
    return HomeStatus(HomeState.COMPLETE, ctx) if (home / FILES).is_dir() else _INCOMPLETE


def stage(root: Path, paths: HomePaths, ctx: HomeCtx) -> Path:
    """Create a new volume beside its final path: empty, with its ctx."""
    make_way(root, paths.box)
    staging = paths.staging(ctx.incarnation)
    remove_tree(staging)
    staging.mkdir(mode=PASS_THROUGH)
    staging.chmod(PASS_THROUGH)
    files = staging / FILES
    files.mkdir(mode=0o700)
    fd = os.open(staging / CTX, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with open(fd, "w", encoding="utf-8") as file:
        json.dump({"incarnation": ctx.incarnation, "restore_marker": ctx.restore_marker}, file)
        file.flush()
        os.fsync(fd)
    sync_dir(staging)
    return staging


def make_way(root: Path, box: Path) -> None:
    """Create the directories down to a home's, so that workspaces can traverse them."""
    root.mkdir(mode=PASS_THROUGH, parents=True, exist_ok=True)
    step = root
    for part in box.relative_to(root).parts:
        step = step / part
        with contextlib.suppress(FileExistsError):
            step.mkdir(mode=PASS_THROUGH)
            step.chmod(PASS_THROUGH)  # regardless of the umask
            sync_dir(step.parent)  # a home is as durable as the way to it


def take_away(paths: HomePaths, incarnation: str) -> bool:
    """Rename `home` to trash and check it afterwards. Returns False if it was another incarnation, which is put back.

    A leader that was frozen since its fence check finds the next leader's volume here (INV-11).
    """
    trash = paths.box / f"{TRASH}{incarnation}"
    paths.home.rename(trash)
    if not _is_anothers(trash):
        return True
    trash.rename(paths.home)
    return False


def put_back(paths: HomePaths) -> None:
    """Put back a volume that `take_away` took by mistake before it was interrupted."""
    for trash in paths.leftovers(TRASH):
        if _is_anothers(trash) and not paths.home.exists():
            trash.rename(paths.home)


def _is_anothers(trash: Path) -> bool:
    ctx = inspect_home(trash).ctx
    return ctx is not None and trash.name != f"{TRASH}{ctx.incarnation}"


def set_aside(paths: HomePaths) -> None:
    """Move a home that cannot be confirmed as complete out of the way, but keep it."""
    number = len(paths.leftovers(DAMAGED))
    while (paths.box / f"{DAMAGED}{number}").exists():
        number += 1
    paths.home.rename(paths.box / f"{DAMAGED}{number}")


def listed(directory: Path) -> list[Path]:
    try:
        return [directory / name for name in os.listdir(directory)]
    except (FileNotFoundError, NotADirectoryError):
        return []


def remove_box(paths: HomePaths) -> None:
    """Remove the directory around a home once it is empty. Its parents are shared with homes that may be in creation."""
    with contextlib.suppress(OSError):
        paths.box.rmdir()


def sync_below(path: Path) -> None:
    """Flush everything below a path with one call per file system. One call per file would take minutes."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        if _LIBC.syncfs(fd) != 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code), str(path))
    finally:
        os.close(fd)


def sync_dir(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
