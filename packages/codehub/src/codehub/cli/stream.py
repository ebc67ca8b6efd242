"""A byte stream into a workspace through the proxy: connect, upgrade, and move bytes. Standard library sockets only.

After `101`, the connection belongs to the workspace. Over plain HTTP it can be passed to another process (`ssh` with
ProxyUseFdpass), so that no byte passes through Python.
"""

from __future__ import annotations

import array
import json
import os
import re
import select
import socket
import ssl
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from codehub.domain.errors import CodeHubError, Conflict, Denied, NotFound, Unauthorized, Unavailable

_PROTOCOL = "codehub-stream"
_CHUNK = 256 << 10
_LONGEST_HEAD = 64 << 10
_STATUS = re.compile(rb"HTTP/1\.[01] (\d{3})[ \r]")
_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*(\d{1,9})[ \t]*\r", re.IGNORECASE)
_KINDS: Mapping[int, type[CodeHubError]] = {401: Unauthorized, 403: Denied, 404: NotFound, 409: Conflict}


def open_stream(workspace: Mapping[str, Any], what: str, token: str) -> socket.socket:
    """`what` is `ssh` or `tcp/PORT`. Raises the error that the proxy answered with."""
    base = urlsplit(str(workspace["url"]))
    secure = base.scheme == "https"
    host, port = base.hostname or "localhost", base.port or (443 if secure else 80)
    try:
        connection = socket.create_connection(_address(host, port), timeout=30)
        if secure:
            connection = ssl.create_default_context().wrap_socket(connection, server_hostname=host)
    except OSError as error:
        raise Unavailable(f"{host}:{port} does not answer ({error})") from error
    try:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.sendall(
            f"GET /_codehub/{workspace['id']}/{what} HTTP/1.1\r\nHost: {base.netloc}\r\nAuthorization: Bearer {token}\r\n"
            f"Connection: Upgrade\r\nUpgrade: {_PROTOCOL}\r\n\r\n".encode()
        )
        _read_answer(connection)
        connection.settimeout(None)
    except BaseException:
        connection.close()
        raise
    return connection


def _address(host: str, port: int) -> tuple[str, int]:
    # glibc does not resolve *.localhost to this machine.
    return ("localhost" if host.endswith(".localhost") else host), port


def _read_answer(connection: socket.socket) -> None:
    """Read to the end of the head and not a byte further: the rest is the workspace's data."""
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        byte = connection.recv(1)
        if not byte or len(head) > _LONGEST_HEAD:
            raise Unavailable("the workspace proxy closed the connection")
        head += byte
    first = _STATUS.match(head)
    if first is None:
        raise Unavailable(
            "what answers at the workspace's address is not CodeHub's proxy; `codehub ws show` prints the address"
        )
    status = int(first[1])
    if status == 101:
        return
    length = _LENGTH.search(head)
    body = b""
    while length and len(body) < min(int(length[1]), _LONGEST_HEAD):
        data = connection.recv(_CHUNK)
        if not data:
            break
        body += data
    try:
        message = str(json.loads(body)["error"]["message"])
    except (ValueError, KeyError, TypeError):
        message = f"the proxy answered {status}"
    raise _KINDS.get(status, Unavailable)(message)


def hand_over(connection: socket.socket, to_fd: int) -> None:
    """Pass the connection to the process on the other side of a Unix socket (ssh's ProxyUseFdpass)."""
    with socket.socket(fileno=os.dup(to_fd)) as channel:
        fds = array.array("i", [connection.fileno()])
        channel.sendmsg([b"\0"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)])


def relay(connection: socket.socket, read_fd: int, write_fd: int) -> None:
    """Copy in both directions until the workspace has finished sending.

    The end of our side is forwarded as a half-close.
    """
    reading = True
    while True:
        watched: list[Any] = [connection, *([read_fd] if reading else [])]
        pending = isinstance(connection, ssl.SSLSocket) and connection.pending() > 0
        ready = [connection] if pending else select.select(watched, [], [])[0]
        if connection in ready:
            data = connection.recv(_CHUNK)
            if not data:
                return
            _write_all(write_fd, data)
        if read_fd in ready:
            data = os.read(read_fd, _CHUNK)
            if data:
                connection.sendall(data)
            else:
                reading = False
                if not isinstance(connection, ssl.SSLSocket):
                    connection.shutdown(socket.SHUT_WR)


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
