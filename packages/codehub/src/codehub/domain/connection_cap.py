"""Limits the connections per address, so that one client that opens thousands cannot lock out others."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence

Network = ipaddress.IPv4Network | ipaddress.IPv6Network

# The address of connections on a Unix socket. Its permissions let only our own reverse proxy connect.
UNIX_PEER = "unix"
# Many users may share an address, each with several tabs, terminals and SSH connections.
MOST_PER_ADDRESS = 4_000


def network_of(address: str) -> str:
    """Return the network to count an address under. An IPv6 /64 usually belongs to one customer."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address or "?"
    if isinstance(parsed, ipaddress.IPv6Address):
        return str(parsed.ipv4_mapped or ipaddress.ip_network((parsed, 64), strict=False))
    return str(parsed)


def most_per_address(open_files: int) -> int:
    """Return the limit, at most a quarter of the file descriptors the process may open."""
    return max(16, min(MOST_PER_ADDRESS, open_files // 4))


class ConnectionCap:
    """Count connections by address. `exempt` holds our own reverse proxies, which carry all users' connections.

    Connections on a Unix socket are exempt too.
    """

    def __init__(self, most: int, exempt: Sequence[Network] = ()) -> None:
        self._most = most
        self._exempt = exempt
        self._open: dict[str, int] = {}

    def admit(self, address: str) -> bool:
        """Return whether another connection may be opened. If so, it counts until `release`."""
        key = network_of(address)
        count = self._open.get(key, 0)
        if count >= self._most and not self._is_exempt(address):
            return False
        self._open[key] = count + 1
        return True

    def release(self, address: str) -> None:
        """Release an admitted connection. Call once for each."""
        key = network_of(address)
        left = self._open.get(key, 0) - 1
        if left > 0:
            self._open[key] = left
        else:
            self._open.pop(key, None)

    def _is_exempt(self, address: str) -> bool:
        if address == UNIX_PEER:
            return True
        try:
            parsed = ipaddress.ip_address(address)
        except ValueError:
            return False
        return any(parsed in network for network in self._exempt)
