"""The data directory of `codehub up`: created, checked, and shared with its unprivileged parts."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from codehub.adapters.embedded.account import Account
from codehub.adapters.embedded.layout import write_private
from codehub.adapters.process.layout import RunLayout
from codehub.domain.errors import Conflict, Invalid

# Increased when something in the data directory changes so that an older CodeHub would misread it.
_LAYOUT = 1
# Exists while a restore is under way, or was interrupted.
UNFINISHED_RESTORE = "unfinished-restore"
# What the group needs to read a record, and to connect to a socket whose name it knows.
_READ_DIRECTORY = 0o050
_REACH_SOCKETS = 0o2010


def prepare(path: Path) -> None:
    """Check that the directory exists, is writable, and has a known layout. Otherwise raises Invalid with what to do."""
    try:
        path.mkdir(mode=0o711, parents=True, exist_ok=True)
    except OSError as error:
        raise Invalid(
            f"CODEHUB_DATA_DIR={path}: cannot be created ({error.strerror}). "
            "Choose a directory you can write to: CODEHUB_DATA_DIR=/path codehub up"
        ) from error
    if not os.access(path, os.W_OK | os.X_OK):
        raise Invalid(f"CODEHUB_DATA_DIR={path}: not writable by you. Choose another directory, or change its owner.")
    if (path / "archives").is_dir():
        (path / "archives").chmod(0o700)  # created by a version that let others read it
    layout = path / "layout"
    try:
        there = int(layout.read_text())
    except FileNotFoundError:
        layout.write_text(f"{_LAYOUT}\n")
        return
    except (ValueError, OSError) as error:
        raise Invalid(f"{layout} cannot be read as a number: is {path} a CodeHub data directory?") from error
    if there > _LAYOUT:
        raise Invalid(
            f"CODEHUB_DATA_DIR={path} belongs to a newer CodeHub (layout {there}, this one knows {_LAYOUT}): "
            "run that version, or restore the backup made before the upgrade"
        )


def refuse_unfinished_restore(path: Path) -> None:
    try:
        backup = (path / UNFINISHED_RESTORE).read_text().partition("\n")[0]
    except OSError:
        return
    raise Conflict(f"a restore into {path} was interrupted: repeat it first, with `codehub restore {backup}`")


def share(path: Path, account: Account) -> None:
    """Give API and proxy, which are not root, access to workspaces that an older CodeHub started for root only.

    This covers records, output and sockets. Without it, such a workspace would run on and be out of reach.
    """
    layout = RunLayout(path / "run" / "instances")
    for place in layout.root.glob("[!.]*"):
        _open_to_group(place, account.gid, _READ_DIRECTORY)
    sockets = layout.socket_root()
    if sockets.is_dir() and not sockets.is_symlink() and sockets.lstat().st_uid == os.geteuid():
        for place in sockets.glob("*"):
            _open_to_group(place, account.gid, _REACH_SOCKETS)


def _open_to_group(directory: Path, gid: int, permissions: int) -> None:
    """Give a directory and its direct entries to a group. A workspace may write there, so links are not followed."""
    try:
        fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return
    try:
        info = os.fstat(fd)
        if info.st_gid == gid and info.st_mode & permissions == permissions:
            return
        for name in os.listdir(fd):
            _open_entry_to_group(name, fd, gid)
        # Last, so that an interrupted change is noticed. A change of the group removes the set-group-id bit.
        os.fchown(fd, -1, gid)
        os.fchmod(fd, stat.S_IMODE(info.st_mode) | permissions)
    finally:
        os.close(fd)


def _open_entry_to_group(name: str, directory_fd: int, gid: int) -> None:
    try:
        # The inode that is checked is the one that is changed, whatever the workspace puts in its place meanwhile.
        fd = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory_fd)
    except OSError:
        return
    try:
        info = os.fstat(fd)
        is_socket = stat.S_ISSOCK(info.st_mode)
        if is_socket or (stat.S_ISREG(info.st_mode) and info.st_nlink == 1):
            os.chown(f"/proc/self/fd/{fd}", -1, gid)
            os.chmod(f"/proc/self/fd/{fd}", stat.S_IMODE(info.st_mode) | (0o060 if is_socket else 0o040))
    finally:
        os.close(fd)


def write_environment(data_dir: Path, values: dict[str, str]) -> None:
    """Store the effective settings, for `codehub env` and for `codehub login` on the same machine."""
    write_private(data_dir / "environment", "".join(f"{name}={value}\n" for name, value in values.items()))
