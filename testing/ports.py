"""Ports for the servers that tests start.

They are below the kernel's range for outgoing connections: such a port is still free when its server binds it, also after a
restart, regardless of how many connections were made meanwhile.
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
    """Return this many different ports that no process on this machine uses."""
    end = int(_OUTGOING.read_text().split()[0]) if _OUTGOING.exists() else 0
    ports: list[int] = []
    with ExitStack() as held:
        while len(ports) < count:
            probe = held.enter_context(socket.socket())
            # Not with `random`, which tests seed: two of them would choose the same port.
            wanted = _FIRST + secrets.randbelow(end - _FIRST) if end > _FIRST else 0
            try:
                probe.bind(("127.0.0.1", wanted))
            except OSError:
                continue
            ports.append(int(probe.getsockname()[1]))
    return ports
