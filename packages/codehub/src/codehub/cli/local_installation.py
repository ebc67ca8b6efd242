"""Whether the CodeHub that runs on this machine is the one that listens at an address.

Any local user may listen at a port that CodeHub does not use at the moment. A credential from the data directory, and a
token that was created with one, go only to an address where the process that holds the data directory listens.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

from codehub.data_dir import holder

_LISTEN = "0A"
_TABLES = ("/proc/net/tcp", "/proc/net/tcp6")
_Address = tuple[ipaddress.IPv4Address | ipaddress.IPv6Address, int]


def serves(data_dir: Path, address: str) -> bool:
    """Return whether whoever connects to the address reaches the process that holds the data directory.

    An address with https is proven by its certificate.
    """
    found, parts = holder(data_dir), urlsplit(address)
    if found is None:
        return False
    if parts.scheme == "https":
        return True
    try:
        # Nobody else's process: of a CodeHub in a container, the number is that of another process here.
        if _user_of(found.pid) != (data_dir / "up.lock").stat().st_uid:
            return False
        reached = {
            (ipaddress.ip_address(where[4][0]), int(where[4][1]))
            for where in socket.getaddrinfo(parts.hostname, parts.port or 80, type=socket.SOCK_STREAM)
        }
        listening = set(_listening(found.pid))
    except (OSError, ValueError):
        return False
    wildcard = {4: ipaddress.ip_address("0.0.0.0"), 6: ipaddress.ip_address("::")}
    return bool(reached) and all(
        one in listening or (wildcard[one[0].version], one[1]) in listening for one in reached
    )


def _user_of(pid: int) -> int:
    """Return the uid that a process runs as. The owner of its directory in /proc may be root whoever it is."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("Uid:")).split()[1])


def _listening(pid: int) -> Iterator[_Address]:
    """Yield where a process listens. It holds its sockets as long as it runs, so nobody else can listen there."""
    sockets = set()
    for each in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            sockets.add(os.readlink(each))
    for table in _TABLES:
        for line in Path(table).read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == _LISTEN and f"socket:[{fields[9]}]" in sockets:
                yield _address(fields[1])


def _address(text: str) -> _Address:
    """The kernel prints addresses as 32-bit words in the order of the machine's bytes."""
    host, _, port = text.partition(":")
    words = (int(host[at : at + 8], 16).to_bytes(4, sys.byteorder) for at in range(0, len(host), 8))
    return ipaddress.ip_address(b"".join(words)), int(port, 16)
