"""The extended attributes of a user's file that are kept with it."""

from __future__ import annotations

import errno
import os
from typing import Final

# The rest (trusted.*, security.selinux) belong to the machine.
_KEPT: Final = ("user.", "system.posix_acl_")


def kept_xattrs(fd: int) -> dict[str, bytes]:
    try:
        names = os.listxattr(fd)
    except OSError:  # a file system without xattrs
        return {}
    found: dict[str, bytes] = {}
    for name in names:
        if name.startswith(_KEPT):
            try:
                found[name] = os.getxattr(fd, name)
            except OSError as error:
                if error.errno != errno.ENODATA:  # removed meanwhile
                    raise
    return found
