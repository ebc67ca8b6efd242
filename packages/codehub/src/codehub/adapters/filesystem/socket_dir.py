"""Directories in which a workspace makes the sockets that CodeHub connects to: its own, and closed to everybody else."""

from __future__ import annotations

import contextlib
import os
import struct
from pathlib import Path

from codehub.domain.errors import Terminal

# Owner and group may read and write what is created, others nothing, whatever the creator's umask: version 2, then
# (tag, permissions, id) of the owner, the group and the others.
_GROUP_WRITES = struct.pack("<I" + "HHI" * 3, 2, 1, 7, 0xFFFFFFFF, 4, 6, 0xFFFFFFFF, 32, 0, 0xFFFFFFFF)


def prepare_socket_root(place: Path) -> None:
    """The directory above them is CodeHub's: nobody else can put anything in the place of one of them."""
    place.mkdir(mode=0o711, parents=True, exist_ok=True)
    found = place.lstat()
    if found.st_uid != os.geteuid() or found.st_mode & 0o022 or place.is_symlink():
        raise Terminal(f"{place} is not CodeHub's own directory: remove it")


def give_socket_dir(place: Path, uid: int | None) -> None:
    """A new directory for one start and its own user alone."""
    place.mkdir(mode=0o700)
    if uid is not None:
        # Sockets that the workspace makes there belong to CodeHub's group, so that a proxy that is not root connects.
        with contextlib.suppress(OSError):  # no ACLs on this file system: only root connects then
            os.setxattr(place, "system.posix_acl_default", _GROUP_WRITES)
        os.chown(place, uid, os.getegid())
        place.chmod(0o2710)
