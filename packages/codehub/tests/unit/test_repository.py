"""Which addresses of repositories are accepted, and what is made of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codehub.adapters.postgres.rows import repo_of
from codehub.domain.errors import Invalid
from codehub.domain.repository import canonical_host, parse_source, parse_url


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
        "javascript:alert(1)",
        "file:/etc/passwd",
        "https:/example.org/app.git",
        "https://example.org/%00app",
    ],
)
def test_what_reads_the_host_runs_a_command_or_holds_a_secret_is_refused(url: str) -> None:
    with pytest.raises(Invalid):
        parse_url(url)


@pytest.mark.parametrize(
    "url",
    [
        "https://alice:hunter2@example.org/app.git",
        "https://hunter2@example.org/app.git",
        "ssh://git:hunter2@example.org/app.git",
        "https://alice:hunter2@example.org:99999/app.git",
        "https://alice:hunter2@[::/app.git",
        "https://alice:hunter2@/app.git",
        "hunter2@https://example.org/app.git",
        "alice:hunter2@example.org/team/app.git",
        "alice:hunter2@example.org:team/app.git",
        "alice@example.org:hunter2@git.example.org/app.git",
        "alice:hunter2/x@example.org/app.git",
    ],
)
def test_a_url_with_a_password_is_refused_with_what_to_do_and_not_repeated(url: str) -> None:
    """The last ones are short forms of SSH for git: of the host `alice`."""
    with pytest.raises(Invalid, match="git-auth add") as refused:
        parse_url(url)
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize(
    ("path", "name"),
    [
        (".ssh.git", "ssh"),
        (".github", "github"),
        ("my%20repo.git", "my-repo"),
        ("日本.git", "日本"),
        ("-x", "x"),
        ("a;b$(c)", "a-b--c-"),
        ("é" * 300, "é" * 100),
    ],
)
def test_the_clone_is_an_ordinary_folder_whatever_the_repository_is_called(path: str, name: str) -> None:
    assert parse_url(f"https://example.org/team/{path}").name == name


@pytest.mark.parametrize(
    ("scheme", "host", "stored"),
    [
        ("https", "Git.Example.org:443", "git.example.org"),
        ("https", "git.example.org:80", "git.example.org:80"),
        ("http", "git.example.org:80", "git.example.org"),
        ("https", "[2001:DB8::1]:443", "[2001:db8::1]"),
        ("https", "git.example.org:8443", "git.example.org:8443"),
        ("https", "git.example.org.", "git.example.org."),
    ],
)
def test_git_asks_for_a_host_as_a_url_has_it(scheme: str, host: str, stored: str) -> None:
    assert canonical_host(scheme, host) == stored


def test_git_gets_the_scheme_as_it_knows_it() -> None:
    assert parse_url("HTTPS://Example.org/app.git").url == "https://Example.org/app.git"


def test_a_row_of_an_older_codehub_with_such_a_url_does_not_break_the_list() -> None:
    assert repo_of({"url": "alice:hunter2@example.org/team/app.git"}) is None
    assert repo_of({"url": "https://example.org/app", "ref": "x"}) == parse_source("https://example.org/app", "x")


@pytest.mark.parametrize("ref", ["main", "feature/x", "v1.2.3", "0123abcd", "ünïcode", "refs/pull/1/head"])
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
    assert found.name[0] not in ".-"
    assert len(found.name.encode()) <= 200
    assert not found.host.startswith("-")
