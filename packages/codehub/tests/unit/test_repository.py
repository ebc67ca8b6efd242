"""Which addresses of repositories are accepted, and what is made of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codehub.domain.errors import Invalid
from codehub.domain.repository import parse_source, parse_url


@pytest.mark.parametrize(
    ("url", "scheme", "host", "name"),
    [
        ("https://example.org/team/app.git", "https", "example.org", "app"),
        ("https://Example.org:443/team/app/", "https", "example.org", "app"),
        ("http://127.0.0.1:8080/app.git", "http", "127.0.0.1:8080", "app"),
        ("https://[::1]:8443/a/b", "https", "[::1]:8443", "b"),
        ("ssh://git@example.org/team/app.git", "ssh", "example.org", "app"),
        ("ssh://git@example.org:2222/app", "ssh", "example.org:2222", "app"),
        ("git@example.org:team/app.git", "ssh", "example.org", "app"),
        ("example.org:app", "ssh", "example.org", "app"),
    ],
)
def test_remote_addresses_are_accepted(url: str, scheme: str, host: str, name: str) -> None:
    found = parse_url(url)
    assert (found.scheme, found.host, found.name, found.url) == (scheme, host, name, url)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "/etc",
        "../other",
        "file:///etc/passwd",
        "ext::sh -c id",
        "ext::id",
        "--upload-pack=id",
        "-oProxyCommand=id",
        "https://example.org/app.git --config=x",
        "https://user:secret@example.org/app.git",
        "https://token@example.org/app.git",
        "https:///app.git",
        "https://example.org/",
        "https://example.org/..",
        "https://example.org/.git",
        "https://example.org/a%2f..%2fb",
        "https://example.org/app?x=1",
        "ssh://-oProxyCommand=id/app",
        "ssh://-o@example.org/app",
        "-oProxyCommand=id@example.org:app",
        "git@-oProxyCommand=id:app",
        "https://example.org:99999/app",
        "https://example.org/app\n.git",
        "ftp://example.org/app.git",
    ],
)
def test_what_reads_the_host_runs_a_command_or_holds_a_secret_is_refused(url: str) -> None:
    with pytest.raises(Invalid):
        parse_url(url)


@pytest.mark.parametrize("ref", ["main", "feature/x", "v1.2.3", "0123abcd", "ünïcode"])
def test_branches_tags_and_commits_are_accepted(ref: str) -> None:
    assert parse_source("https://example.org/app", ref).ref == ref


@pytest.mark.parametrize(
    "ref", ["-x", "a..b", "a b", "a~1", "a^", "a:b", "x.lock", "/x", "x/", "@{u}", "@", ".x", "a/.b", "a\n"]
)
def test_what_git_would_read_otherwise_is_no_ref(ref: str) -> None:
    with pytest.raises(Invalid):
        parse_source("https://example.org/app", ref)


@pytest.mark.parametrize("path", ["/etc", "..", "a/../b", ".git", "a//b", "a/./b", "a\0b"])
def test_a_path_never_leaves_the_clone(path: str) -> None:
    with pytest.raises(Invalid):
        parse_source("https://example.org/app", path=path)


def test_the_ide_opens_the_folder_inside_the_clone() -> None:
    assert parse_source("https://example.org/team/app.git", path="services/web/").folder == "app/services/web"
    assert parse_source("https://example.org/team/app.git").folder == "app"


@given(st.text(max_size=60))
def test_whatever_is_accepted_is_safe_to_hand_to_git(text: str) -> None:
    try:
        found = parse_url(text)
    except Invalid:
        return
    assert not found.url.startswith("-")
    assert "::" not in found.url or "://" in found.url
    assert "/" not in found.name
    assert found.name not in (".", "..", ".git")
    assert not found.host.startswith("-")
