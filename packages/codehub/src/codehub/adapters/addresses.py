"""Which addresses this machine may connect to on behalf of a user. It can reach hosts that users must not."""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Sequence

import psutil

from codehub.domain.networks import CLOUD_SERVICES

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_CLOUD_SERVICES = [ipaddress.ip_network(network) for network in CLOUD_SERVICES]
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")


def own_addresses() -> set[str]:
    return {each.address.partition("%")[0] for group in psutil.net_if_addrs().values() for each in group}


def parse_address(text: str) -> Address:
    """Parse an address as a resolver returns it. An IPv4 address inside an IPv6 one is what counts."""
    address = ipaddress.ip_address(text.partition("%")[0])
    if isinstance(address, ipaddress.IPv6Address):
        embedded = address.ipv4_mapped or address.sixtofour
        if address in _NAT64:
            embedded = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
        return embedded or address
    return address


def is_public(text: str, own: Collection[str], allowed: Sequence[Network] = ()) -> bool:
    """Return whether an address is public and not this machine's, or in one of the allowed private networks."""
    address = parse_address(text)
    if str(address) in own or address.is_loopback or address.is_link_local or address.is_multicast:
        return False
    if any(address in network for network in _CLOUD_SERVICES if network.version == address.version):
        return False
    return address.is_global or any(address in network for network in allowed if network.version == address.version)
