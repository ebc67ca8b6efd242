"""A Unix socket on which the API or the proxy listens for a reverse proxy of the same machine.

Its file's permissions say who may connect, unlike a port, which every program of the machine reaches. Requests that arrive
there may therefore name their client's address.
"""

from __future__ import annotations

import os
import secrets
import socket
import stat
from pathlib import Path

from codehub.domain.errors import Invalid

_MODE = 0o660


def listen_front(path: Path, name: str) -> socket.socket:
    """Listen at a path, for the owner and the group of the directory. `name` is the setting, for errors.

    The socket of an earlier process is replaced at once: the earlier one finishes its connections, and no connection is
    refused in between.
    """
    new = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        if os.path.lexists(path) and not stat.S_ISSOCK(path.lstat().st_mode):
            raise Invalid(f"{name}={path}: something that is not a socket is there")
        group = path.parent.stat().st_gid
        old = os.umask(0o777 & ~_MODE)
        try:
            listener.bind(str(new))
        finally:
            os.umask(old)
        if new.lstat().st_gid != group:
            try:
                os.chown(new, -1, group, follow_symlinks=False)
            except PermissionError as error:
                raise Invalid(
                    f"{name}={path}: the socket cannot be given to the directory's group; run `chmod g+s {path.parent}`"
                ) from error
        listener.listen(1024)
        listener.setblocking(False)
        os.rename(new, path)
    except BaseException as error:
        listener.close()
        new.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise Invalid(f"{name}={path}: cannot listen there: {error.strerror or error}") from error
        raise
    return listener
