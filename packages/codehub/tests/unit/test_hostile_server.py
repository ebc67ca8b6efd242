"""A server that answers with values which other programs on the user's machine would understand as something else."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from codehub.cli import ssh_files
from codehub.cli.answers import Answer, web_address
from codehub.cli.client import Client
from codehub.cli.options import find_workspace
from codehub.domain.errors import Conflict, Unavailable

ID = "01900000-0000-7000-8000-000000000001"


def workspace_of(workspace_id: object) -> Client:
    def answer(_: httpx.Request) -> httpx.Response:
        workspace = {"id": workspace_id, "name": "api", "status": "RUNNING"}
        return httpx.Response(200, json={"items": [workspace], "total": 1, **workspace})

    return Client("https://codehub.example.org", "cht_x", transport=httpx.MockTransport(answer))


@pytest.mark.parametrize("named", ["api", ID])
@pytest.mark.parametrize(
    "sent", ["-oProxyCommand=touch pwned #", "a'; touch pwned; '", f"{ID}\r\nX: y", "../..", "", 7]
)
def test_an_id_that_ssh_would_take_for_an_option_or_a_shell_for_a_command_is_refused(
    named: str, sent: object
) -> None:
    with workspace_of(sent) as client, pytest.raises(Unavailable, match="id has another form"):
        find_workspace(client, named)
    with workspace_of(ID) as client:
        assert find_workspace(client, named)["id"] == ID


@pytest.mark.parametrize(
    "key",
    [
        "ssh-ed25519 AAAA\n@cert-authority * ssh-ed25519 BBBB",
        "ssh-ed25519 AAAA\nother.codehub ssh-ed25519 BBBB",
        "",
        "AAAA",
        "ssh-ed25519 AAAA\x1b[2J",
    ],
)
def test_a_host_key_is_one_key_of_one_host(key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    with pytest.raises(Conflict, match="host key"):
        ssh_files.remember_host("api.codehub", key)
    assert not ssh_files.known_hosts().exists()
    ssh_files.remember_host("api.codehub", "ssh-ed25519 AAAAC3Nz+/=")
    assert ssh_files.known_hosts().read_text() == "api.codehub ssh-ed25519 AAAAC3Nz+/=\n"


@pytest.mark.parametrize(
    "url", ["file:///etc/passwd", "--renderer-cmd-prefix=touch", "vscode://x", "https://a b", "https://a\x1b[2J", ""]
)
def test_only_web_pages_are_opened_in_a_browser(url: str) -> None:
    with pytest.raises(Unavailable, match="not the address of a web page"):
        web_address(Answer("https://codehub.example.org", {"url": url}))


def test_ssh_gives_a_shell_the_host_name_as_one_word_and_no_name_with_a_quote() -> None:
    block = ssh_files.block(server=None, fd_passing=False)
    assert "ssh --stdio '%n'\n" in block
    assert block.splitlines()[1] == 'Host *.codehub "!*' + "'" + '*"'
