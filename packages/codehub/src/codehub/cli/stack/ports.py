"""Listening sockets: the default port or the next free one; or the requested port, or an error naming its holder."""

from __future__ import annotations

import errno
import socket

import psutil

from codehub.domain.errors import Conflict, Invalid

_TRIES = 50


def listen(bind: str, *, explicit: bool, name: str) -> socket.socket:
    """Listen on HOST:PORT. If the port is in use and was not explicitly configured (`explicit`), use the next free one."""
    host, _, port = bind.rpartition(":")
    host = host.strip("[]")
    for number in [int(port)] if explicit else range(int(port), int(port) + _TRIES):
        try:
            return _listening(host, number)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                if explicit:
                    raise Conflict(
                        f"{name}={bind}: the port is taken{_by(number)}. Free it, or choose another."
                    ) from error
                continue
            raise Invalid(f"{name}={bind}: cannot listen there: {error.strerror}") from error
    raise Conflict(f"no free port from {port} to {int(port) + _TRIES - 1}: set {name}")


def _listening(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((host, port))
        made.listen(1024)
    except BaseException:
        made.close()
        raise
    return made


def _by(port: int) -> str:
    try:
        for connection in psutil.net_connections("tcp"):
            if connection.status == psutil.CONN_LISTEN and connection.pid and connection.laddr[1:] == (port,):
                process = psutil.Process(connection.pid)
                return f" by {process.name()} (pid {process.pid})"
    except psutil.Error:
        pass
    return ""
