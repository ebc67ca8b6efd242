"""The daemon's listening sockets: bound to loopback on the wanted port, or another, and passed on to a successor.

Passing needs unix sockets (Linux, macOS). Elsewhere the successor listens on a port of its own and the registry says
which.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import tempfile

from sari.protocol.errors import Denied

HOST = "127.0.0.1"
CAN_PASS = hasattr(socket, "send_fds")
_BACKLOG = 512
# Neighbours first, so that a person finds the daemon near where it should be; then whatever is free.
_NEIGHBOURS = 10
_PASS_TIMEOUT_S = 10.0


class PortTaken(Denied):
    """Something else listens on the port that was asked for."""


def listen(port: int, explicit: bool, flag: str) -> socket.socket:
    """Listen on a loopback port; on another one if that is taken, unless it was asked for explicitly."""
    candidates = [port] if explicit else [port, *(range(port + 1, port + 1 + _NEIGHBOURS) if port else ()), 0]
    for candidate in candidates:
        if not 0 <= candidate < 65536:
            continue
        sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            if os.name == "posix":
                # Our own closed connections must not keep us from the port; on Windows this would let two listen.
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind((HOST, candidate))
            sock.listen(_BACKLOG)
            sock.setblocking(False)
        except OSError as error:
            sock.close()
            if explicit:
                raise PortTaken(
                    f"port {port} cannot be listened on ({error.strerror}): another program holds it. "
                    f"Choose another port, or leave {flag} out to take any free one"
                ) from error
            continue
        return sock
    raise PortTaken(f"no port is free near {port}: set {'SARI_' + flag.strip('-').upper().replace('-', '_')}")


def port_of(sock: socket.socket) -> int:
    """The port a socket listens on."""
    port = sock.getsockname()[1]
    assert isinstance(port, int)
    return port


def send_sockets(path: str, sockets: list[socket.socket]) -> int:
    """Pass listening sockets to the successor who waits at a unix socket."""
    if not CAN_PASS:
        return 0
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
        line.settimeout(_PASS_TIMEOUT_S)
        line.connect(path)
        ports = json.dumps([port_of(sock) for sock in sockets]).encode()
        socket.send_fds(line, [ports], [sock.fileno() for sock in sockets])
    return len(sockets)


class Receiver:
    """The successor's end: a unix socket in a directory of its own, there while the sockets are on their way."""

    def __init__(self) -> None:
        # Not beside the registry, whose path may be longer than a unix socket's may be.
        self._directory = tempfile.mkdtemp(prefix="sari-")
        self.path = path = os.path.join(self._directory, "s")
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(path)
        os.chmod(path, 0o600)
        self._listener.listen(1)
        self._listener.settimeout(_PASS_TIMEOUT_S)

    def receive(self) -> list[socket.socket]:
        """Wait for the sockets."""
        line, _ = self._listener.accept()
        with line:
            line.settimeout(_PASS_TIMEOUT_S)
            _, descriptors, _, _ = socket.recv_fds(line, 1024, 4)
        sockets = [socket.socket(fileno=descriptor) for descriptor in descriptors]
        for sock in sockets:
            sock.set_inheritable(False)
            sock.setblocking(False)
        return sockets

    def close(self) -> None:
        """Leave nothing behind."""
        self._listener.close()
        with contextlib.suppress(OSError):
            os.unlink(self.path)
        with contextlib.suppress(OSError):
            os.rmdir(self._directory)
