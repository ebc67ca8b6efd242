"""Directories in which a workspace creates the sockets that CodeHub connects to. Only that workspace can access its own."""

from __future__ import annotations

import contextlib
import os
import struct
from pathlib import Path

from codehub.domain.errors import Terminal

# Owner and group may read and write new files, others nothing, regardless of the creator's umask: version 2, then (tag,
# permissions, id) of the owner, the group and others.
_GROUP_WRITES = struct.pack("<I" + "HHI" * 3, 2, 1, 7, 0xFFFFFFFF, 4, 6, 0xFFFFFFFF, 32, 0, 0xFFFFFFFF)


def prepare_socket_root(place: Path) -> None:
    """Create the parent directory. It belongs to CodeHub, so that no other user can replace an entry in it."""
    place.mkdir(mode=0o711, parents=True, exist_ok=True)
    found = place.lstat()
    if found.st_uid != os.geteuid() or found.st_mode & 0o022 or place.is_symlink():
        raise Terminal(f"{place} is not CodeHub's own directory: remove it")


def give_socket_dir(place: Path, uid: int | None) -> None:
    """Create a directory that only the user of this start can access."""
    place.mkdir(mode=0o700)
    if uid is not None:
        # Sockets that the workspace creates there belong to CodeHub's group, so that a proxy that is not root can connect.
        with contextlib.suppress(OSError):  # no ACLs on this file system: only root can connect
            os.setxattr(place, "system.posix_acl_default", _GROUP_WRITES)
        os.chown(place, uid, os.getegid())
        place.chmod(0o2710)
