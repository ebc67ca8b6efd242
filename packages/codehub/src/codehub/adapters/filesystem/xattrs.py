"""The extended attributes of a user's file that are kept with it."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from typing import Final

# The rest (trusted.*, security.selinux) belong to the machine.
_KEPT: Final = ("user.", "system.posix_acl_")


def kept_xattrs(fd: int) -> Iterator[tuple[str, bytes]]:
    """Yield names and values one by one: some file systems keep thousands of 64 KiB for one file."""
    try:
        names = os.listxattr(fd)
    except OSError as error:
        if error.errno in (errno.ENOTSUP, errno.ENOSYS):  # a file system without xattrs
            return
        raise
    for name in names:
        if name.startswith(_KEPT):
            try:
                yield name, _value(fd, name)
            except OSError as error:
                if error.errno != errno.ENODATA:  # removed meanwhile
                    raise


def _value(fd: int, name: str) -> bytes:
    try:
        return os.getxattr(fd, name)
    except PermissionError:
        # The mode denies reading to us as the owner: unlike content, attributes are not readable by an open descriptor.
        mode = stat.S_IMODE(os.fstat(fd).st_mode)
        os.fchmod(fd, mode | 0o400)
        try:
            return os.getxattr(fd, name)
        finally:
            os.fchmod(fd, mode)
