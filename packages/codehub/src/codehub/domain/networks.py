"""Determines which networks a workspace may not reach. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from ipaddress import IPv4Network

_PRIVATE = ("10.0.0.0/8", "100.64.0.0/10", "172.16.0.0/12", "192.168.0.0/16", "198.18.0.0/15")
LINK_LOCAL = "169.254.0.0/16"  # cloud metadata
# Services of clouds for their own machines, with the machine's credentials, at addresses that are not link-local: Azure's
# WireServer; Oracle's metadata service, among the addresses for protocols (RFC 6890).
CLOUD_SERVICES = ("168.63.129.16/32", "192.0.0.0/24")
# "This network", link-local, multicast, reserved.
_NEVER = ("0.0.0.0/8", LINK_LOCAL, *CLOUD_SERVICES, "224.0.0.0/4", "240.0.0.0/4")


def blocked_networks(own_addresses: Iterable[str], allowed: Sequence[str]) -> list[str]:
    """Return the blocked networks: the machine's own addresses, link-local, and private networks except `allowed`."""
    private = [IPv4Network(text) for text in _PRIVATE]
    for text in allowed:
        opened = IPv4Network(text)
        private = [left for network in private for left in _without(network, opened)]
    machine = [IPv4Network(address) for address in own_addresses]
    return [str(network) for network in (*map(IPv4Network, _NEVER), *private, *machine)]


def _without(network: IPv4Network, opened: IPv4Network) -> list[IPv4Network]:
    if network.subnet_of(opened):
        return []
    return list(network.address_exclude(opened)) if opened.subnet_of(network) else [network]
