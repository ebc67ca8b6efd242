"""Addresses: of repositories, networks, clients, and the return address after a sign-in."""

from __future__ import annotations

import ipaddress
from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codehub.domain.body_pace import MIN_BYTES_PER_S, PAUSE_S, body_deadline
from codehub.domain.connection_cap import ConnectionCap, most_per_address, network_of
from codehub.domain.continuing import continued
from codehub.domain.errors import Invalid
from codehub.domain.names import LONGEST, free_name
from codehub.domain.networks import blocked_networks
from codehub.domain.repository import parse_source, parse_url
from codehub.domain.routing import is_local_path, workspace_authority, workspace_url
from testing.codehub.workspaces import NOW, workspace

ID = "01890000-0000-7000-8000-000000000001"


@pytest.mark.parametrize(
    ("url", "host", "name", "ssh"),
    [
        ("https://example.org/app.git/", "example.org", "app", False),
        ("https://example.org/a%2Db", "example.org", "a-b", False),
        ("http://example.org:80/app", "example.org", "app", False),
        ("http://example.org:443/app", "example.org:443", "app", False),
        ("ssh://example.org:22/app", "example.org", "app", True),
        ("git@EXAMPLE.org:app", "example.org", "app", True),
        ("https://example.org/" + "n" * 300, "example.org", "n" * 200, False),
    ],
)
def test_a_repository_has_a_host_and_a_name(url: str, host: str, name: str, ssh: bool) -> None:
    found = parse_url(url)
    assert (found.host, found.name, found.uses_ssh) == (host, name, ssh)


@pytest.mark.parametrize(
    "url",
    [
        "https://example.org/app#x",
        "https://-example.org/app",
        "https://exa_mple.org/app",
        "https://example.org:x/app",
        "ssh://git:secret@example.org/app",
        "ssh://a%20b@example.org/app",
        "https://@example.org:8443",
        "host::path",
        "a:b::c",
        "example.org:",
        "example.org::app",
        "https://example.org/app ",
        " https://example.org/app",
        "https://example.org/a\x7fb",
        "https://example.org/a\x1fb",
        "https://[::1/app",
    ],
)
def test_what_git_could_read_otherwise_is_refused(url: str) -> None:
    with pytest.raises(Invalid):
        parse_url(url)


def test_an_address_has_at_most_2048_characters_and_a_ref_255() -> None:
    start = "https://example.org/"
    long = start + "d/" * ((2048 - len(start) - 4) // 2)
    fits = long + "n" * (2048 - len(long))
    assert parse_url(fits).url == fits
    with pytest.raises(Invalid, match="at most 2048"):
        parse_url(fits + "n")
    assert parse_source("https://a.b/c", "r" * 255).ref
    with pytest.raises(Invalid, match="not the name of a branch"):
        parse_source("https://a.b/c", "r" * 256)


@pytest.mark.parametrize("ref", ["a\x7f", "a\x1f", "a@{b", "a//b", "a\\b", "a?", "a*", "a[", "a.", "a/", "b.lock"])
def test_a_ref_is_one_that_git_accepts(ref: str) -> None:
    with pytest.raises(Invalid):
        parse_source("https://a.b/c", ref)
    assert parse_source("https://a.b/c", "a@b").ref == "a@b"
    assert parse_source("https://a.b/c", "feature/x.y_z-1!").ref


def test_without_a_ref_and_a_path_they_are_empty() -> None:
    found = parse_source("https://a.b/c")
    assert (found.ref, found.path) == ("", "")


def test_a_folder_inside_the_clone_is_normalized() -> None:
    assert parse_source("https://a.b/c", path="x/y/").path == "x/y"
    assert parse_source("https://a.b/c", path="x/.hidden/...").path == "x/.hidden/..."
    for path in ("/x", "x/../y", "x\ny", "x/.git/hooks", "."):
        with pytest.raises(Invalid, match="not a folder inside"):
            parse_source("https://a.b/c", path=path)


@pytest.mark.parametrize(
    ("base", "pattern", "authority"),
    [
        ("http://localhost:8001", "", "localhost:8001"),
        ("http://[::1]:8001", "*.localhost", f"{ID}.localhost:8001"),
        ("http://[::1]", "*.localhost", f"{ID}.localhost"),
        ("https://example.org", "*.ws.example.org", f"{ID}.ws.example.org"),
    ],
)
def test_a_workspaces_host_keeps_the_port(base: str, pattern: str, authority: str) -> None:
    assert workspace_authority(base, pattern, ID) == authority
    assert workspace_url(base, pattern, ID) == f"{base.partition(':')[0]}://{authority}/w/{ID}/"


def test_a_return_address_has_neither_spaces_nor_other_letters() -> None:
    for path in (f"/w/{ID}/a b", f"/w/{ID}/ä", f"/w/{ID}/\x7f", f"/w/{ID}"):
        assert not is_local_path(path, ID)
    assert is_local_path(f"/w/{ID}/", ID)
    assert is_local_path(f"/w/{ID}/~!?x=..&y=/../", ID)


def _reaches(blocked: list[str], address: str) -> bool:
    return not any(ipaddress.ip_address(address) in ipaddress.ip_network(network) for network in blocked)


def test_a_workspace_reaches_the_internet_and_no_private_network() -> None:
    blocked = blocked_networks(["203.0.113.5"], [])
    assert _reaches(blocked, "198.51.100.7")
    for address in (
        "10.1.2.3",
        "172.16.0.1",
        "192.168.1.1",
        "100.64.0.1",
        "169.254.169.254",
        "168.63.129.16",
        "192.0.0.192",
        "0.0.0.1",
        "203.0.113.5",
    ):
        assert not _reaches(blocked, address), address


@given(st.sampled_from(["10.0.0.0/8", "10.9.0.0/16", "10.9.8.7/32", "10.0.0.0/7", "192.168.0.0/16"]))
def test_an_allowed_network_is_reached_and_its_neighbours_are_not(allowed: str) -> None:
    blocked, opened = blocked_networks(["10.9.8.7"], [allowed]), ipaddress.ip_network(allowed)
    for address in ("10.0.0.1", "10.9.0.1", "10.200.0.1", "172.16.0.1", "192.168.1.1"):
        assert _reaches(blocked, address) is (ipaddress.ip_address(address) in opened)
    assert not _reaches(blocked, "10.9.8.7"), "the machine itself is never opened"
    for address in ("169.254.169.254", "168.63.129.16", "192.0.0.192"):
        assert not _reaches(blocked_networks([], [f"{address}/32"]), address), "nor cloud metadata"


def test_connections_are_counted_by_network_and_forgotten_when_they_end() -> None:
    assert network_of("") == "?"
    assert network_of("not an address") == "not an address"
    assert [most_per_address(files) for files in (0, 64, 68, 16_000, 16_004)] == [16, 16, 17, 4000, 4000]
    cap = ConnectionCap(2, [ipaddress.ip_network("10.0.0.0/8")])
    assert [cap.admit("odd"), cap.admit("odd"), cap.admit("odd")] == [True, True, False]
    cap.release("odd")
    assert [cap.admit("odd"), cap.admit("odd")] == [True, False]
    for _ in range(3):
        cap.release("never admitted")
    assert [cap.admit("never admitted") for _ in range(3)] == [True, True, False]


def test_bytes_earn_a_client_time_up_to_one_pause() -> None:
    assert body_deadline(100.0, 99.0, 10 * MIN_BYTES_PER_S) == 110.0
    assert body_deadline(100.0, 99.0, 10**9) == 99.0 + PAUSE_S
    assert body_deadline(100.0, 99.0, 0) == 100.0
    assert (PAUSE_S, MIN_BYTES_PER_S) == (60.0, 100), "as docs/security.md says"


def test_a_continued_workspace_keeps_its_settings_and_fits_its_name() -> None:
    source = replace(
        workspace(),
        name="n" * 255,
        memo="keep",
        error_count=3,
        busy=None,
        keep_awake_until=NOW,
        retry_at=NOW,
        archive_op_id="op-1",
    )
    new = continued(source, ID, NOW + timedelta(hours=1))
    assert len(new.name) == 255
    assert new.name.endswith("n (continued)")
    assert (new.memo, new.error_count, new.keep_awake_until, new.retry_at, new.archive_op_id) == (
        "keep",
        0,
        None,
        None,
        None,
    )
    assert new.created_at == new.updated_at == new.phase_changed_at == NOW + timedelta(hours=1)


def test_a_taken_name_gets_the_first_free_number_and_stays_short_enough() -> None:
    assert free_name("app", []) == "app"
    assert free_name("app", ["app"]) == "app-2"
    assert free_name("app", ["app", "app-2", "app-4"]) == "app-3"
    long = "n" * LONGEST
    assert free_name(long, [long]) == "n" * (LONGEST - 2) + "-2"
    assert LONGEST == 255, "the width of the column"
