"""Forwards a Unix socket outside to an IDE that listens only on a port, in the network namespace of its workspace.

A child process of the supervisor, in the namespace and as the workspace's user.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import threading

from codehub.adapters.process.confinement import (
    Confinement,
    Namespaces,
    close_standard_streams,
    join,
    plain_signals,
)


def start_bridge(plan: Confinement, held: Namespaces, uid: int | None) -> int:
    """Start a process in the namespace, as the workspace's user, between its socket outside and its port inside."""
    pid = os.fork()
    if pid == 0:
        try:
            plain_signals()
            close_standard_streams()
            with socket.socket(socket.AF_UNIX) as listener:
                bind(listener, plan.bridge_socket, uid)
                join(held)
                if uid is not None:
                    os.setgroups([])
                    os.setresgid(uid, uid, uid)
                    os.setresuid(uid, uid, uid)
                plain_signals()  # again: changing the user resets the parent-death signal
                # After the change of user, because clients see the listener's credentials.
                listener.listen(512)
                _serve(listener, plan.bridge_port)
        finally:
            os._exit(127)
    return pid


def bind(listener: socket.socket, path: str, uid: int | None) -> None:
    """Create the socket with its final mode. Its directory is the workspace's: the path may be a link at any time."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    os.umask(0o117)
    listener.bind(path)
    if uid is not None:
        os.chown(path, uid, -1, follow_symlinks=False)


def _serve(listener: socket.socket, port: int) -> None:
    while True:
        client, _ = listener.accept()
        threading.Thread(target=_carry, args=(client, port), daemon=True).start()


def _carry(client: socket.socket, port: int) -> None:
    # Nothing may be imported from here on, as a name lookup would: the workspace's user cannot read our files.
    with client, contextlib.suppress(OSError), socket.socket() as server:
        server.connect(("127.0.0.1", port))
        ends = {client: server, server: client}
        while ends:
            for source in select.select(list(ends), [], [])[0]:
                data = source.recv(65_536)
                if data:
                    ends[source].sendall(data)
                else:
                    ends.pop(source).shutdown(socket.SHUT_WR)
