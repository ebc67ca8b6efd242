"""Ports for the servers that tests start.

Below those that the kernel gives to outgoing connections: one of these is still free when its server comes to bind it, and
when that server is started again after a restart, however many connections were made meanwhile.
"""

from __future__ import annotations

import secrets
import socket
from contextlib import ExitStack
from pathlib import Path
from typing import Final

_FIRST: Final = 20_000
_OUTGOING: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")


def free_port() -> int:
    (port,) = free_ports(1)
    return port


def free_ports(count: int) -> list[int]:
    """So many different ones that nobody on this machine holds."""
    end = int(_OUTGOING.read_text().split()[0]) if _OUTGOING.exists() else 0
    ports: list[int] = []
    with ExitStack() as held:
        while len(ports) < count:
            probe = held.enter_context(socket.socket())
            # Not by `random`, which tests seed: two of them would choose the same.
            wanted = _FIRST + secrets.randbelow(end - _FIRST) if end > _FIRST else 0
            try:
                probe.bind(("127.0.0.1", wanted))
            except OSError:
                continue
            ports.append(int(probe.getsockname()[1]))
    return ports
