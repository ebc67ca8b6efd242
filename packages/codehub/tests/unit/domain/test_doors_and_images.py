"""Ids, ports and images as people and programs write them."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codehub.domain.doors import IDE, NO_PORT, Door, Kind, narrowed, parse_port, read_host, read_key, read_path
from codehub.domain.errors import Invalid
from codehub.domain.ids import is_id, time_of
from codehub.domain.images import ImageRef, is_allowed, parse_image
from codehub.domain.profiles import CODE_SERVER, JUPYTERLAB

_ID = "01980000-0000-7000-8000-000000000001"


@given(st.integers(1, 65_535))
def test_every_port_is_read_as_it_is_written(port: int) -> None:
    assert parse_port(str(port)) == port
    assert read_path(f"/w/{_ID}/port/{port}/x/y") == (_ID, Door(Kind.PORT, port))
    assert read_path(f"/_codehub/{_ID}/tcp/{port}") == (_ID, Door(Kind.TCP, port))
    assert read_host(f"{port}-{_ID}.ws.example.org:8443", "*.ws.example.org") == (
        _ID,
        Door(Kind.PORT, port, own_host=True),
    )


@pytest.mark.parametrize("text", ["", "0", "080", "65536", "99999", "100000", "-1", "+1", "1.0", "٣", " 1"])
def test_what_is_no_port_leads_nowhere(text: str) -> None:
    assert parse_port(text) is None
    assert read_path(f"/_codehub/{_ID}/tcp/{text}") == (_ID, Door(Kind.TCP, NO_PORT))
    page = Door(Kind.PORT, NO_PORT) if text.isdigit() else IDE  # a page of the IDE may be called port
    assert read_path(f"/w/{_ID}/port/{text}/") == (_ID, page)
    found = read_host(f"{text}-{_ID}.ws.example.org", "*.ws.example.org")
    assert found in (None, (_ID, Door(Kind.PORT, NO_PORT, own_host=True)))


@given(st.sampled_from([Door(), Door(Kind.SSH), Door(Kind.TCP, 22), Door(Kind.PORT, 3000), Door(Kind.PORT, 1, True)]))
def test_a_key_is_read_back_as_the_door_that_made_it(door: Door) -> None:
    assert read_key(door.key(_ID)) == (_ID, door)
    assert door.is_stream is (door.kind in (Kind.SSH, Kind.TCP))


def test_no_two_doors_share_a_cached_decision() -> None:
    doors = [Door(kind, port, own) for kind in Kind for port in (1, 2) for own in (True, False)]
    keys = {door.key(_ID) for door in doors if door.kind is not Kind.IDE} | {IDE.key(_ID)}
    assert len(keys) == len([door for door in doors if door.kind is not Kind.IDE]) + 1


def test_a_host_of_another_domain_or_of_no_workspace_is_no_door() -> None:
    assert read_host(f"3000-{_ID}.evil.org", "*.ws.example.org") is None
    assert read_host(f"3000-{_ID[:-1]}.ws.example.org", "*.ws.example.org") is None
    assert read_host(f"3000-{_ID}0.ws.example.org", "*.ws.example.org") is None
    assert read_host(f"{_ID}.ws.example.org", "*.ws.example.org") is None
    assert read_host(f"3000-{_ID}.ws.example.org", "") is None
    assert read_host(f"3000-{_ID}.WS.Example.org", "*.ws.EXAMPLE.org") is not None


def test_a_path_that_ends_before_the_port_is_the_ides() -> None:
    for rest in ("", "/", "/port", "/port/", "/portal/80"):
        assert read_path(f"/w/{_ID}{rest}") == (_ID, IDE)


def test_an_administrator_narrows_a_share_and_never_widens_it() -> None:
    assert narrowed("link", "users") == "users"
    assert narrowed("owner", "link") == "owner"
    assert narrowed("users", "users") == "users"


def test_an_id_is_a_uuid_of_version_7_in_lower_case_and_tells_its_time() -> None:
    assert is_id(_ID)
    for text in (_ID.upper().replace("0198", "ABCD"), _ID[:-1], _ID + "0", _ID.replace("-7", "-4"), "", _ID + "\n"):
        assert not is_id(text)
    made = datetime(2026, 11, 16, 12, 34, 56, 789_000, tzinfo=UTC)
    digits = f"{round(made.timestamp() * 1000):012x}"
    op_id = f"{digits[:8]}-{digits[8:]}-7abc-8def-0123456789ab"
    assert time_of(op_id) == made
    assert time_of(f"{op_id}.inc-2") == made
    assert time_of("anything") is None


_DIGEST = "sha256:" + "a" * 64


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("python", ImageRef("", "python", "latest", "")),
        ("team/app:1", ImageRef("", "team/app", "1", "")),
        ("localhost/app", ImageRef("localhost", "app", "latest", "")),
        ("localhost:5000/team/app:1", ImageRef("localhost:5000", "team/app", "1", "")),
        ("ghcr.io/team/app", ImageRef("ghcr.io", "team/app", "latest", "")),
        (f"app@{_DIGEST}", ImageRef("", "app", "", _DIGEST)),
        (f"ghcr.io/app:1@{_DIGEST}", ImageRef("ghcr.io", "app", "1", _DIGEST)),
        ("[::1]:5000/app", ImageRef("[::1]:5000", "app", "latest", "")),
    ],
)
def test_an_image_is_read_as_container_engines_read_it(text: str, expected: ImageRef) -> None:
    assert parse_image(text) == expected
    assert parse_image(str(expected)) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "App",
        "app:",
        "app@",
        "app@sha256:abc",
        "-app",
        "a b",
        "app:t@g",
        "ghcr.io/",
        "/app",
        "http://a.b/c",
        "a//b",
        # Engines take these for the id of any image that they have.
        _DIGEST,
        "sha256:" + "a" * 12,
        "sha256",
        "sha512:" + "a" * 128,
        "a" * 64,
        f"sha256@{_DIGEST}",
        # Engines take these for an image of the registry that follows.
        "docker.io/localhost/app",
        "index.docker.io/ghcr.io/team/app",
    ],
)
def test_what_is_no_image_is_refused(text: str) -> None:
    with pytest.raises(Invalid):
        parse_image(text)


def test_an_image_fits_into_its_column() -> None:
    assert parse_image("a" * 512).repository == "a" * 512
    with pytest.raises(Invalid, match="at most 512"):
        parse_image("a" * 513)


@pytest.mark.parametrize(
    ("glob", "allowed"),
    [
        ("ghcr.io/team/app", True),
        ("ghcr.io/team/*", True),
        ("ghcr.io/team/app:*", True),
        (f"ghcr.io/team/app@{_DIGEST}", True),
        (f"ghcr.io/team/app:1@{_DIGEST}", True),
        ("*.io/team/*", True),
        ("*", True),
        # The engine ignores the tag: the digest may be any image's of that name.
        ("ghcr.io/team/app:1", False),
        ("*:1", False),
        ("ghcr.io/team/app:1*", False),
        ("ghcr.io/team/app:2", False),
        ("team/app", False),
        ("ghcr.io/other/*", False),
    ],
)
def test_a_glob_matches_with_and_without_tag_and_digest(glob: str, allowed: bool) -> None:
    image = parse_image(f"ghcr.io/team/app:1@{_DIGEST}")
    assert is_allowed(image, ["nothing/*", glob]) is allowed
    assert not is_allowed(image, [])


@pytest.mark.parametrize(
    ("glob", "image", "allowed"),
    [
        ("python*", "python:3.12", True),
        ("python*", "python-slim", True),
        ("python*", "pythonevil/x", False),
        ("python*", "python.evil.example/x", False),
        ("team*/app", "team.evil.example/app", False),
        ("team/*", "team/below/app:1", True),
        ("team/*", "ghcr.io/team/app", False),
        ("ghcr.io/*", "ghcr.io/team/app", True),
        ("ghcr.io*", "ghcr.io.evil.example/app", False),
        ("*.example.org/app", "a.example.org/app", True),
        ("*.example.org/app", "evil.example/b.example.org/app", False),
        ("*:stable", "ghcr.io/team/app:stable", True),
        ("*:stable", "app:edge", False),
        ("*", "ghcr.io/team/app", True),
        ("*", "team/app", True),
        # An engine connects to these in its own machine or network.
        ("*", "localhost/app", False),
        ("*", "localhost:5000/app", False),
        ("*", "registry.localhost:80/app", False),
        ("*", "127.0.0.1:5000/app", False),
        ("*:latest", "10.0.0.1/app", False),
        ("*", "127.1/app", False),
        ("*", "0x7f.0.0.0x1:80/app", False),
        ("*", "2130706433:80/app", False),
        ("*", "[::1]/app", False),
        ("*/app", "[::1]:5000/app", False),
        ("127.0.0.*/app", "127.0.0.1/app", False),
        ("127.0.0.1:5000/*", "127.0.0.1:5000/app:1", True),
        ("[::1]:5000/*", "[::1]:5000/app:1", True),
        ("localhost/*", "localhost/app", True),
    ],
)
def test_a_glob_is_about_the_registries_that_it_names(glob: str, image: str, allowed: bool) -> None:
    assert is_allowed(parse_image(image), [glob]) is allowed


def test_a_proxy_that_restarts_closes_jupyterlabs_connections_with_a_code_on_which_it_reconnects() -> None:
    assert JUPYTERLAB.close_code == 1012, "service restart: it does not reconnect after 1000 and 1001"
    assert CODE_SERVER.close_code == 1001
