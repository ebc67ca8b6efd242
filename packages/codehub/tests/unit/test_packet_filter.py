"""Which packet filter rules are left over from networks that are gone."""

from __future__ import annotations

from codehub.adapters.docker.packet_filter import stale_rules

LISTING = """-P INPUT ACCEPT
-N DOCKER-USER
-N CODEHUB-0123456789ab
-N CODEHUB-ffffffffffff
-N CODEHUB-custom
-A INPUT -i ch-0123456789a -m conntrack --ctstate NEW -j DROP
-A INPUT -i ch-fffffffffff -m conntrack --ctstate NEW -j DROP
-A INPUT -i ch-fffffffffff0 -j DROP
-A FORWARD -i ch-0123456789a ! -o ch-0123456789a -j ACCEPT
-A OUTPUT -o ch-0123456789a -m conntrack --ctstate NEW -j DROP
-A OUTPUT -o eth0 -j ACCEPT
-A DOCKER-USER -i ch-0123456789a -j CODEHUB-0123456789ab
-A DOCKER-USER -i ch-fffffffffff -j CODEHUB-ffffffffffff
-A CODEHUB-0123456789ab -d 10.0.0.0/8 -j DROP
"""


def test_only_rules_of_our_missing_bridges_are_stale_and_chains_go_last() -> None:
    assert [" ".join(command) for command in stale_rules(LISTING, {"lo", "eth0", "ch-fffffffffff"})] == [
        "-D INPUT -i ch-0123456789a -m conntrack --ctstate NEW -j DROP",
        "-D FORWARD -i ch-0123456789a ! -o ch-0123456789a -j ACCEPT",
        "-D OUTPUT -o ch-0123456789a -m conntrack --ctstate NEW -j DROP",
        "-D DOCKER-USER -i ch-0123456789a -j CODEHUB-0123456789ab",
        "-F CODEHUB-0123456789ab",
        "-X CODEHUB-0123456789ab",
    ]


def test_nothing_is_stale_while_all_bridges_exist() -> None:
    assert stale_rules(LISTING, {"ch-0123456789a", "ch-fffffffffff"}) == []
