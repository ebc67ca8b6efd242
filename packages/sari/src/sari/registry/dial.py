"""Connects to a daemon and identifies it without trusting the peer.

The token is never sent: both sides prove that they hold it (`sari.protocol.handshake`). Another program may listen on
the port of a daemon that ended or moved.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time

from sari.protocol.handshake import client_proof, daemon_proof, is_nonce, is_proof

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

CONNECT_TIMEOUT_S = 3.0
# A daemon answers this immediately from its event loop, but fifty clients may start on a machine with two busy cores.
IDENTIFY_TIMEOUT_S = 15.0
# The most time to spend on an unknown program on the default port.
STRANGER_TIMEOUT_S = 1.0
_LARGEST_ANSWER = 1 << 20


class Identity:
    """The daemon that answered. `protocols` are the wire protocols it serves; empty for a daemon too old to report them."""

    __slots__ = ("boot_id", "draining", "pid", "protocols", "version")

    def __init__(self, version: str, boot_id: str, pid: int, draining: bool, protocols: tuple[int, ...]) -> None:
        self.version = version
        self.boot_id = boot_id
        self.pid = pid
        self.draining = draining
        self.protocols = protocols


class Answered(Exception):
    """Raised when something answers that is not one of our daemons."""


def connect(host: str, port: int, timeout_s: float = CONNECT_TIMEOUT_S) -> socket.socket:
    """Return a connected socket that child processes do not inherit."""
    # Not create_connection: the host is always numeric, and resolving it would import a codec.
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        sock.settimeout(timeout_s)
        sock.connect((host, port))
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    except BaseException:
        sock.close()
        raise
    return sock


def identify(sock: socket.socket, token: str, timeout_s: float) -> Identity:
    """Identify the peer; each side proves that it holds the token. The socket can be used afterwards.

    Raises `Answered` for other programs and OSError if nothing answers. Another program learns nothing useful.
    """
    if not token:
        raise Answered("no token is known for it")
    port = sock.getpeername()[1]
    mine = os.urandom(16).hex()
    hello = _result(sock, -1, "sari/hello", {"nonce": mine}, timeout_s)
    theirs = hello.get("nonce")
    if (
        not is_nonce(theirs)
        or not isinstance(theirs, str)
        or not is_proof(hello.get("proof"), daemon_proof(token, mine, theirs, port))
    ):
        raise Answered("what listens there is not this user's daemon")
    proof = client_proof(token, mine, theirs, port)
    result = _result(sock, -2, "sari/identify", {"proof": proof}, timeout_s)
    if result.get("name") != "sari":
        raise Answered("what listens there is not this user's daemon")
    served = result.get("protocols")
    numbers = served if isinstance(served, list) else [result.get("protocol")]
    return Identity(
        str(result.get("version") or "dev"),
        str(result.get("boot_id") or ""),
        result["pid"] if isinstance(result.get("pid"), int) else 0,
        result.get("draining") is True,
        tuple(number for number in numbers if isinstance(number, int)),
    )


def _result(
    sock: socket.socket, request_id: int, method: str, params: dict[str, object], timeout_s: float
) -> dict[str, Any]:
    answer = _ask(sock, {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}, timeout_s)
    result = answer.get("result")
    return result if isinstance(result, dict) else {}


def is_predecessor(host: str, port: int) -> bool:
    """Whether a sari from before version 3 listens there: it uses headers only and requires `initialize` first."""
    body = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'
    try:
        with connect(host, port, STRANGER_TIMEOUT_S) as sock:
            sock.settimeout(STRANGER_TIMEOUT_S)
            sock.sendall(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
            return b"Server not initialized" in sock.recv(4096)
    except OSError:
        return False


def is_ours(port: int) -> bool:
    """Whether the process listening on a loopback port belongs to this user. Only Linux can tell; False elsewhere."""
    if sys.platform != "linux":
        return False
    wanted = f":{port:04X}"
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            with open(table, encoding="ascii") as file:
                lines = file.readlines()[1:]
        except OSError:
            continue
        for line in lines:
            fields = line.split()
            if fields[3] == "0A" and fields[1].endswith(wanted) and int(fields[7]) == os.geteuid():
                return True
    return False


def _ask(sock: socket.socket, message: dict[str, object], timeout_s: float) -> dict[str, object]:
    deadline = time.monotonic() + timeout_s
    sock.settimeout(timeout_s)
    sock.sendall(json.dumps(message).encode() + b"\n")
    data = bytearray()
    # Bytes after the line belong to the next message, so peek at the data before consuming the line.
    while True:
        sock.settimeout(max(0.01, deadline - time.monotonic()))
        seen = sock.recv(65536, socket.MSG_PEEK)
        if not seen:
            raise ConnectionError("it closed the connection before it identified itself")
        end = seen.find(b"\n")
        data += sock.recv(len(seen) if end < 0 else end + 1)
        if end >= 0:
            break
        if len(data) > _LARGEST_ANSWER:
            raise Answered("its answer has no end")
        if time.monotonic() >= deadline:
            raise TimeoutError("it did not identify itself in time")
    try:
        answer = json.loads(data)
    except (ValueError, RecursionError):
        raise Answered("it does not speak JSON-RPC") from None
    if not isinstance(answer, dict):
        raise Answered("it does not speak JSON-RPC")
    return answer
