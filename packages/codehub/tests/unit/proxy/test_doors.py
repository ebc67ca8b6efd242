"""Addresses of a workspace's doors: under a path, under hosts of their own, and back."""

from __future__ import annotations

from urllib.parse import urljoin

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codehub.domain.doors import (
    IDE,
    NO_PORT,
    SHARES,
    Door,
    Kind,
    door_label,
    is_sibling_port,
    narrowed,
    prefix_of,
    public_url,
    read_host,
    read_key,
    read_path,
    widest_share,
)
from codehub.proxy.admission.decision import Reply
from codehub.proxy.admission.request_context import key_in_path, read
from codehub.proxy.http1.headers import PathRewrite, as_location, map_location, wants_prefix
from codehub.proxy.http1.messages import ResponseHead
from codehub.proxy.http1.parser import parse_request

ID = "01890000-0000-7000-8000-000000000001"
OTHER = "01890000-0000-7000-8000-000000000002"
PATTERN = "*.ws.example.org"
BASE = "https://ws.example.org:8443"
PORTS = st.integers(1, 65535)


@given(PORTS)
def test_a_ports_host_is_read_back(port: int) -> None:
    door = Door(Kind.PORT, port)
    host = f"{door_label(ID, door)}{PATTERN[1:]}:8443"
    assert read_host(host, PATTERN) == (ID, Door(Kind.PORT, port, own_host=True))
    assert read_host(host, "") is None


@pytest.mark.parametrize(
    "host",
    [
        f"{ID}.ws.example.org",
        f"٣-{ID}.ws.example.org",
        f"80-{ID}.evil.example.org",
        f"80-{ID}x.ws.example.org",
        f"x.80-{ID}.ws.example.org",
        f"80-{ID}",
        "80-.ws.example.org",
        "",
    ],
)
def test_other_hosts_are_no_ports(host: str) -> None:
    assert read_host(host, PATTERN) is None


@pytest.mark.parametrize("number", ["0", "08", "65536", "99999999"])
def test_the_address_of_a_port_with_a_number_that_no_port_has_is_refused(number: str) -> None:
    """It is not taken for another page of the proxy: that would lead to the dashboard without a word."""
    host = f"{number}-{ID}.ws.example.org"
    assert read_host(host, PATTERN) == (ID, Door(Kind.PORT, NO_PORT, own_host=True))
    places = [
        (host, "/"),
        ("ws.example.org", f"/w/{ID}/port/{number}/"),
        ("ws.example.org", f"/_codehub/{ID}/tcp/{number}"),
    ]
    for place, path in places:
        reply = read(parse_request(f"GET {path} HTTP/1.1\r\nHost: {place}".encode()), [], PATTERN)
        assert isinstance(reply, Reply)
        assert reply.status == 404
        assert b"from 1 to 65535" in reply.body


def port_origin(port: int, workspace_id: str = ID) -> str:
    return f"https://{port}-{workspace_id}.ws.example.org:8443"


@given(PORTS, PORTS)
def test_ports_of_one_workspace_are_siblings(one: int, other: int) -> None:
    assert is_sibling_port(port_origin(one), port_origin(other))


@pytest.mark.parametrize(
    "origin",
    [
        "",
        "null",
        f"https://{ID}.ws.example.org:8443",
        f"https://3000-{OTHER}.ws.example.org:8443",
        f"http://3000-{ID}.ws.example.org:8443",
        f"https://3000-{ID}.ws.example.org",
        f"https://3000-{ID}.ws.example.org:8444",
        f"https://3000-{ID}.ws.example.org:8443.evil.example",
        f"https://3000-{ID}.evil.example:8443",
        f"https://evil-{ID}.ws.example.org:8443",
        f"https://0-{ID}.ws.example.org:8443",
        f"https://70000-{ID}.ws.example.org:8443",
        f"https://evil.example/https://3000-{ID}.ws.example.org:8443",
        f"https://3000-{ID}.ws.example.org:8443\r\nX: y",
        "https://ws.example.org:8443",
    ],
)
def test_nothing_else_is_a_sibling_of_a_port(origin: str) -> None:
    assert not is_sibling_port(origin, port_origin(8080))


@given(PORTS, st.booleans(), st.sampled_from(Kind))
def test_what_a_decision_is_remembered_by_names_the_door(port: int, own_host: bool, kind: Kind) -> None:
    door = IDE if kind is Kind.IDE else Door(kind, port, own_host)
    assert read_key(door.key(ID)) == (ID, door)


@given(PORTS, st.sampled_from(["", "?a=1", "x/y?a=1#b", "port/1/"]))
def test_a_ports_address_under_its_host_leads_to_the_same_path_in_the_application(port: int, rest: str) -> None:
    path = f"{prefix_of(ID, Door(Kind.PORT, port))}/{rest}"
    assert read_path(path.partition("?")[0]) == (ID, Door(Kind.PORT, port))
    assert public_url(BASE, PATTERN, ID, path) == f"https://{port}-{ID}.ws.example.org:8443/{rest}"
    assert public_url(BASE, "", ID, path) == BASE + path


@given(st.sampled_from(SHARES), st.sampled_from(SHARES))
def test_a_share_is_worth_no_more_than_administrators_allow(share: str, widest: str) -> None:
    worth = narrowed(share, widest)
    assert worth in (share, widest)
    assert SHARES.index(worth) <= min(SHARES.index(share), SHARES.index(widest))


def test_under_a_path_ports_are_shared_only_where_administrators_say_so() -> None:
    assert widest_share("", PATTERN) == "link"
    assert widest_share("", "") == "owner"
    for setting in SHARES:
        assert widest_share(setting, "") == widest_share(setting, PATTERN) == setting


def test_the_ide_keeps_its_path_under_its_host() -> None:
    assert public_url(BASE, PATTERN, ID, f"/w/{ID}/x?y") == f"https://{ID}.ws.example.org:8443/w/{ID}/x?y"


def response(status: int, location: bytes, *cookies: bytes) -> ResponseHead:
    head = ResponseHead(status, b"", 1)
    head.location = location
    head.cookies.extend(cookies)
    return head


def test_an_application_that_redirects_to_where_it_was_asked_has_the_prefix_in_its_paths() -> None:
    prefix = f"/w/{ID}/port/5173".encode()
    learns = PathRewrite(prefix, strip=True, learns=True)
    target = prefix + b"/"
    assert wants_prefix(response(302, target), learns, target)
    assert not wants_prefix(response(302, b"/"), learns, target)
    assert not wants_prefix(response(200, target), learns, target)
    assert not wants_prefix(response(302, target, b"seen=1"), learns, target), "it wants its cookie to come back"
    assert not wants_prefix(response(302, target), PathRewrite(prefix, strip=True), target)
    assert not wants_prefix(response(302, prefix + b"/login"), learns, target)


@pytest.mark.parametrize(
    ("path", "key"),
    [
        ("/x", ID),
        ("/port/8080/", f"{ID}/port/8080"),
        ("/port/8080/x/y", f"{ID}/port/8080"),
        # The address of a port without a slash is redirected. The cached decision of port 8080 was used for it.
        ("/port/80801", ""),
        ("/port/8080*", ""),
        ("/port/8080", ""),
        ("/port/", ""),
    ],
)
def test_a_cached_decision_is_found_by_the_door_of_the_whole_path(path: str, key: str) -> None:
    target = f"/w/{ID}{path}"
    assert key_in_path(target.encode()) == key.encode()
    found = read_path(target)
    if key:
        assert found is not None
        assert found[1].key(found[0]) == key.encode()


@pytest.mark.parametrize("target", [f"/x/{ID}/", f"/w/{ID}", f"/w/{ID}x/", f"//w/{ID}/", "/"])
def test_no_cached_decision_is_found_outside_of_the_prefix(target: str) -> None:
    assert key_in_path(target.encode()) == b""


@pytest.mark.parametrize("rest", ["//evil.example/x?y=1", "/\\evil.example/", "/x//y", "/"])
def test_a_redirect_to_the_requested_path_stays_on_its_host(rest: str) -> None:
    """Behind the last part of an address, `//evil.example` is a path; at the beginning of a Location it is another host."""
    host = "https://8080.ws.example.org"
    own = map_location(f"http://8080.ws.example.org{rest}".encode(), PathRewrite(b"", True), b"8080.ws.example.org")
    for location in (as_location(rest.encode()), own):
        assert urljoin(f"{host}/before", location.decode().replace("\\", "/")) == host + rest.replace("\\", "/")
