"""Lines that died without a word: a laptop that was closed, a node that lost its power.

Silence is normal in a WebSocket and an event stream, so no timeout of ours ends them; the kernel's keep-alive asks whether
the other side is still there, and a line that does not answer for two minutes is closed.
"""

from __future__ import annotations

import socket
from typing import Final

_SILENT_S: Final = 60
_EVERY_S: Final = 15
_TIMES: Final = 4


def enable_keepalive(sock: socket.socket) -> None:
    """Also for a listening socket: what it accepts is watched as it is."""
    if sock.family not in (socket.AF_INET, socket.AF_INET6):
        return  # a unix socket's other side ends with its process
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (("TCP_KEEPIDLE", _SILENT_S), ("TCP_KEEPINTVL", _EVERY_S), ("TCP_KEEPCNT", _TIMES)):
        if hasattr(socket, option):  # macOS has another name for the first, and a default
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
