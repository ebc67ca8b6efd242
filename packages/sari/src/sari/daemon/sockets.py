"""The daemon's listening sockets: binds them to the preferred loopback port, or another, and passes them to a
successor.

Passing needs unix sockets (Linux, macOS). Elsewhere the successor listens on a different port, which it writes to the
registry.
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
# Neighbouring ports are tried first, so that users find the daemon near its default port; then any free port.
_NEIGHBOURS = 10
_PASS_TIMEOUT_S = 10.0


class PortTaken(Denied):
    """Raised when another program listens on the requested port."""


def listen(port: int, explicit: bool, flag: str) -> socket.socket:
    """Listen on a loopback port. If it is taken, use another one unless the port was requested explicitly."""
    candidates = [port] if explicit else [port, *(range(port + 1, port + 1 + _NEIGHBOURS) if port else ()), 0]
    for candidate in candidates:
        if not 0 <= candidate < 65536:
            continue
        sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            if os.name == "posix":
                # Our own closed connections must not block the port. On Windows this option would allow two listeners.
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
    """Return the port that a socket listens on."""
    port = sock.getsockname()[1]
    assert isinstance(port, int)
    return port


def send_sockets(path: str, sockets: list[socket.socket]) -> int:
    """Pass listening sockets to the successor that waits at a unix socket."""
    if not CAN_PASS:
        return 0
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
        line.settimeout(_PASS_TIMEOUT_S)
        line.connect(path)
        ports = json.dumps([port_of(sock) for sock in sockets]).encode()
        socket.send_fds(line, [ports], [sock.fileno() for sock in sockets])
    return len(sockets)


class Receiver:
    """The successor's end: a unix socket in a private directory, which exists only during the transfer."""

    def __init__(self) -> None:
        # Not beside the registry: its path may exceed the length limit of unix sockets.
        self._directory = tempfile.mkdtemp(prefix="sari-")
        self.path = path = os.path.join(self._directory, "s")
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(path)
        os.chmod(path, 0o600)
        self._listener.listen(1)
        self._listener.settimeout(_PASS_TIMEOUT_S)

    def receive(self) -> list[socket.socket]:
        """Wait for the sockets and return them."""
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
        """Close the socket and remove its directory."""
        self._listener.close()
        with contextlib.suppress(OSError):
            os.unlink(self.path)
        with contextlib.suppress(OSError):
            os.rmdir(self._directory)
