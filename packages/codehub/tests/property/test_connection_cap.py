"""The cap on connections per address."""

from __future__ import annotations

import ipaddress
import resource
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codehub.cli.stack.rights import raise_open_files
from codehub.domain.connection_cap import UNIX_PEER, ConnectionCap, most_per_address, network_of

ADDRESSES = st.sampled_from(["192.0.2.1", "192.0.2.2", "::ffff:192.0.2.1", "2001:db8::1", "2001:db8::2", "", "odd"])


@given(st.lists(st.tuples(st.booleans(), ADDRESSES), max_size=200), st.integers(1, 5))
def test_no_address_ever_has_more_than_its_share_and_what_left_makes_room(
    steps: list[tuple[bool, str]], most: int
) -> None:
    cap = ConnectionCap(most)
    open_now: dict[str, int] = {}
    for opens, address in steps:
        key = network_of(address)
        if opens:
            admitted = cap.admit(address)
            assert admitted == (open_now.get(key, 0) < most)
            open_now[key] = open_now.get(key, 0) + admitted
        elif open_now.get(key, 0):
            cap.release(address)
            open_now[key] -= 1


def test_our_own_reverse_proxy_carries_everybodys() -> None:
    cap = ConnectionCap(1, [ipaddress.ip_network("10.0.0.0/8")])
    assert [cap.admit("10.1.2.3") for _ in range(3)] == [True, True, True]
    assert [cap.admit("192.0.2.1") for _ in range(2)] == [True, False]


def test_an_address_of_ipv6_counts_with_its_neighbours_and_a_mapped_one_as_ipv4() -> None:
    assert network_of("2001:db8::1") == network_of("2001:db8::ffff") != network_of("2001:db8:0:1::1")
    assert network_of("::ffff:192.0.2.1") == "192.0.2.1"


def test_few_open_files_leave_room_for_others() -> None:
    assert (most_per_address(1024), most_per_address(65_536)) == (256, 4000)
    assert (most_per_address(64), most_per_address(8)) == (16, 16)


@pytest.mark.parametrize(("soft", "hard", "raised"), [(256, 1000, 1000), (64, 64, 64)])
def test_the_limit_of_open_files_is_raised_as_far_as_the_machine_allows(soft: int, hard: int, raised: int) -> None:
    code = (
        "import resource as r, sys\n"
        "from codehub.cli.stack.rights import raise_open_files\n"
        "r.setrlimit(r.RLIMIT_NOFILE, (int(sys.argv[1]), int(sys.argv[2])))\n"
        "raise_open_files()\n"
        "print(*r.getrlimit(r.RLIMIT_NOFILE))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(soft), str(hard)], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == [str(raised), str(hard)]


def test_the_limit_of_open_files_is_raised_to_65536_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = [(1024, resource.RLIM_INFINITY)]
    monkeypatch.setattr(resource, "getrlimit", lambda _: limits[-1])
    monkeypatch.setattr(resource, "setrlimit", lambda _, given: limits.append(given))
    raise_open_files()
    raise_open_files()
    assert limits[1:] == [(65_536, resource.RLIM_INFINITY)]


def test_a_reverse_proxy_on_the_unix_socket_carries_the_connections_of_all_users() -> None:
    cap = ConnectionCap(1)
    assert [cap.admit(UNIX_PEER) for _ in range(3)] == [True, True, True]
    assert [cap.admit("192.0.2.1") for _ in range(2)] == [True, False]
