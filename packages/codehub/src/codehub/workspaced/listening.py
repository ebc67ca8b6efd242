"""Listening sockets of `workspaced` and of its bridges. Imports little: the first page of some IDEs waits for a bridge."""

from __future__ import annotations

import contextlib
import os
import socket


def listen(address: str) -> socket.socket:
    """Listen on `unix:PATH`, `HOST:PORT`, or `*:PORT` for all addresses of both families.

    An existing socket from an earlier process is replaced.
    """
    if address.startswith("unix:"):
        path = address[len("unix:") :]
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        # For the owner and the folder's group, which a proxy that is not root uses. The folder keeps others out.
        old = os.umask(0o117)
        try:
            listener.bind(path)
        finally:
            os.umask(old)
    else:
        host, _, port = address.rpartition(":")
        if host == "*":
            return _on_all_addresses(int(port))
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host.strip("[]"), int(port)))
    listener.listen(256)
    return listener


def _on_all_addresses(port: int) -> socket.socket:
    """Listen on IPv4 and IPv6: a cluster gives its pods addresses of either family. A kernel may lack IPv6."""
    if socket.has_dualstack_ipv6():
        return socket.create_server(("::", port), family=socket.AF_INET6, backlog=256, dualstack_ipv6=True)
    return socket.create_server(("0.0.0.0", port), backlog=256)
