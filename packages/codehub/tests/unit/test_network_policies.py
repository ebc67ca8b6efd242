"""The shipped NetworkPolicies refuse what the packet filter and the sandbox refuse, also behind NAT64."""

from __future__ import annotations

from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_network
from pathlib import Path

import yaml

from codehub.domain.networks import blocked_networks

_FILE = Path(__file__).parents[4] / "deploy/kubernetes/workspaces/network-policies.yaml"
_NAT64 = int(IPv6Address("64:ff9b::"))


def test_workspaces_reach_no_network_that_is_refused_elsewhere() -> None:
    policies = {one["metadata"]["name"]: one["spec"] for one in yaml.safe_load_all(_FILE.read_text())}
    blocks = [
        target["ipBlock"]
        for rule in policies["codehub-egress"]["egress"]
        for target in rule["to"]
        if "ipBlock" in target
    ]
    assert {block["cidr"] for block in blocks} == {"0.0.0.0/0", "::/0"}
    excepted = [ip_network(text) for block in blocks for text in block["except"]]
    for network in map(IPv4Network, [*blocked_networks([], []), "127.0.0.0/8"]):
        assert _is_in(network, excepted), network
        behind = IPv6Network((_NAT64 + int(network.network_address), 96 + network.prefixlen))
        assert _is_in(behind, excepted), f"{network} behind NAT64"
    for text in ("fd00:ec2::254/128", "fe80::/10", "::1/128", "ff00::/8"):
        assert _is_in(IPv6Network(text), excepted), text
    assert not _is_in(IPv4Network("1.1.1.1/32"), excepted)
    assert not _is_in(IPv6Network("64:ff9b::101:101/128"), excepted), "the internet is reached through NAT64"


def _is_in(network: IPv4Network | IPv6Network, others: list[IPv4Network | IPv6Network]) -> bool:
    return any(network.version == one.version and network.subnet_of(one) for one in others)  # type: ignore[arg-type]
