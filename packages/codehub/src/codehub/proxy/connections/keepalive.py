"""Detects dead connections: a closed laptop, a node that lost power.

Silence is normal for a WebSocket and an event stream, so no timeout ends them. The kernel's keep-alive probes the peer, and
a connection whose peer does not answer for two minutes is closed.
"""

from __future__ import annotations

import socket
from typing import Final

_SILENT_S: Final = 60
_EVERY_S: Final = 15
_TIMES: Final = 4


def enable_keepalive(sock: socket.socket) -> None:
    """Enable keep-alive. Sockets accepted from a listening socket inherit it."""
    if sock.family not in (socket.AF_INET, socket.AF_INET6):
        return  # the peer of a unix socket ends with its process
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (("TCP_KEEPIDLE", _SILENT_S), ("TCP_KEEPINTVL", _EVERY_S), ("TCP_KEEPCNT", _TIMES)):
        if hasattr(socket, option):  # macOS has another name for the first option, and a default
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
