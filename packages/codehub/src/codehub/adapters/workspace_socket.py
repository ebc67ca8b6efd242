"""Connects to a Unix socket in a directory that a workspace can write to.

The workspace controls the listener and the name: the name may be a symbolic link to another workspace's socket or to the
Docker engine's, or may be replaced between check and use. The name is therefore opened once without following links, the
open file must be a socket, the connection goes to exactly that file, and the listener must run as the workspace's user.
Every part of CodeHub that talks to a workspace connects here.
"""

from __future__ import annotations

import asyncio
import os
import socket
import stat
import struct

_PEERCRED = struct.Struct("iII")  # pid, uid, gid
# Delay between attempts while a listener's queue is full: the kernel does not notify when there is room again.
# It grows, because a workspace can leave its queue full.
_QUEUE_FULL_RETRY_S, _LONGEST_RETRY_S = 0.01, 0.25


class ForeignSocketError(ConnectionRefusedError):
    """Raised if the path is not the workspace's own socket. Handled like a refused connection."""


def connect_workspace_socket(path: str, uid: int | None) -> socket.socket:
    """Return a connected, non-blocking socket. `uid` is the workspace's user; None means CodeHub's own.

    Raises ForeignSocketError for anything but that user's socket, BlockingIOError while the listener's queue is full,
    and OSError as connect(2) does.
    """
    expected = os.geteuid() if uid is None else uid
    target = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if not stat.S_ISSOCK(os.fstat(target).st_mode):
            raise ForeignSocketError(f"{path} is not a socket")
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.setblocking(False)
            # By the open file, not by the name, which may refer to something else by now.
            connection.connect(f"/proc/self/fd/{target}")
            raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEERCRED.size)
            if (listener := _PEERCRED.unpack(raw)[1]) != expected:
                raise ForeignSocketError(f"{path} is served by uid {listener}, not by the workspace's ({expected})")
        except BaseException:
            connection.close()
            raise
    finally:
        os.close(target)
    return connection


async def open_workspace_socket(path: str, uid: int | None) -> socket.socket:
    """Like `connect_workspace_socket`, but wait while the listener's queue is full. The caller sets a deadline."""
    pause_s = _QUEUE_FULL_RETRY_S
    while True:
        try:
            return connect_workspace_socket(path, uid)
        except BlockingIOError:
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 1.2, _LONGEST_RETRY_S)
