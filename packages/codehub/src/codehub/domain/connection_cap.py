"""How many connections one address may have: a stranger who opens thousands must not keep others out."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence

Network = ipaddress.IPv4Network | ipaddress.IPv6Network

# Many people may share an address, each with several tabs.
MOST_PER_ADDRESS = 1000


def network_of(address: str) -> str:
    """What one person has of addresses: a /64 of IPv6 is usually one customer's."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address or "?"
    if isinstance(parsed, ipaddress.IPv6Address):
        return str(parsed.ipv4_mapped or ipaddress.ip_network((parsed, 64), strict=False))
    return str(parsed)


def most_per_address(open_files: int) -> int:
    """A quarter of what the process may open, where that is less."""
    return max(16, min(MOST_PER_ADDRESS, open_files // 4))


class ConnectionCap:
    """Counts connections by address. `exempt` are our own reverse proxies, which carry everybody's."""

    def __init__(self, most: int, exempt: Sequence[Network] = ()) -> None:
        self._most = most
        self._exempt = exempt
        self._open: dict[str, int] = {}

    def admit(self, address: str) -> bool:
        """Whether one more may be open; then it counts until `release`."""
        key = network_of(address)
        count = self._open.get(key, 0)
        if count >= self._most and not self._is_exempt(address):
            return False
        self._open[key] = count + 1
        return True

    def release(self, address: str) -> None:
        """For each that was admitted, once."""
        key = network_of(address)
        left = self._open.get(key, 0) - 1
        if left > 0:
            self._open[key] = left
        else:
            self._open.pop(key, None)

    def _is_exempt(self, address: str) -> bool:
        try:
            parsed = ipaddress.ip_address(address)
        except ValueError:
            return False
        return any(parsed in network for network in self._exempt)
