"""Opens directories whose path no other user can redirect, as sudo and sshd check their paths.

A directory belongs to root or to us, and nobody else can write to it; a sticky directory such as /tmp may be on the way,
because there only an entry's owner can replace it. Each name is resolved once, by descriptors. A path that was found safe
can be used by its name afterwards.
"""

from __future__ import annotations

import os
import pwd
import stat
from pathlib import Path
from typing import Final

from codehub.domain.errors import Invalid

_LOOK: Final = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_MOST_LINKS: Final = 40  # as the kernel


def make_private_dir(path: Path) -> None:
    """Create the directory and what is missing above it. An existing one must be ours and becomes private.

    Raises Invalid if another user could replace or change it.
    """
    fd = _walk(path, make=True)
    try:
        found = os.fstat(fd)
        if found.st_uid != os.geteuid():
            raise Invalid(f"{path} belongs to {_name_of(found.st_uid)}: name a directory of yours, or a new one")
        if found.st_mode & _others():
            raise Invalid(f"{path} can be written by other users: name a directory that only you can write to")
        os.chmod(f"/proc/self/fd/{fd}", 0o700)
    finally:
        os.close(fd)


def check_dir(path: Path) -> None:
    """Raises Invalid unless the directory is ours, or root's, and no other user could have written or replaced it."""
    fd = _walk(path, make=False)
    try:
        found = os.fstat(fd)
        if found.st_uid not in (0, os.geteuid()):
            raise Invalid(f"{path} belongs to {_name_of(found.st_uid)}, who may have changed what is in it")
        if found.st_mode & _others():
            raise Invalid(f"{path} can be written by other users, who may have changed what is in it")
    finally:
        os.close(fd)


def _walk(path: Path, *, make: bool) -> int:
    """Return a descriptor of the directory."""
    left = list(reversed(path.absolute().parts[1:]))
    links, at, fd = 0, Path("/"), os.open("/", _LOOK | os.O_DIRECTORY)
    try:
        while left:
            _check(fd, at)
            name = left.pop()
            below = _look(name, fd, make=make)
            try:
                found = os.fstat(below)
                if stat.S_ISLNK(found.st_mode):
                    _check_owner(found, at / name)
                    links += 1
                    if links > _MOST_LINKS:
                        raise Invalid(f"{path} leads through too many links")
                    target = Path(os.readlink("", dir_fd=below))
                    if target.is_absolute():
                        at, root = Path("/"), os.open("/", _LOOK | os.O_DIRECTORY)
                        fd = _replaced(fd, root)
                    left.extend(reversed([part for part in target.parts if part != "/"]))
                elif not stat.S_ISDIR(found.st_mode):
                    raise Invalid(f"{at / name} is not a directory")
                else:
                    at, fd = at / name, _replaced(fd, os.dup(below))
            finally:
                os.close(below)
    except BaseException:
        os.close(fd)
        raise
    return fd


def _look(name: str, fd: int, *, make: bool) -> int:
    try:
        return os.open(name, _LOOK, dir_fd=fd)
    except FileNotFoundError:
        if not make:
            raise
    os.mkdir(name, 0o700, dir_fd=fd)
    return os.open(name, _LOOK, dir_fd=fd)


def _replaced(old: int, new: int) -> int:
    os.close(old)
    return new


def _others() -> int:
    """Who must not be able to write to the directory itself. A user's group is often that user alone."""
    return 0o022 if os.geteuid() == 0 else 0o002


def _check(fd: int, at: Path) -> None:
    """Only for root: other users' own directories may be shared with a group, and their damage is limited."""
    if os.geteuid() != 0:
        return
    found = os.fstat(fd)
    _check_owner(found, at)
    if found.st_mode & 0o022 and not found.st_mode & stat.S_ISVTX:
        raise Invalid(f"{at} can be written by other users, who could redirect the path: choose another directory")


def _check_owner(found: os.stat_result, at: Path) -> None:
    if os.geteuid() == 0 and found.st_uid != 0:
        raise Invalid(
            f"{at} belongs to {_name_of(found.st_uid)}, who could redirect the path: choose another directory"
        )


def _name_of(uid: int) -> str:
    try:
        return f"the user {pwd.getpwuid(uid).pw_name}"
    except KeyError:
        return f"the user {uid}"
