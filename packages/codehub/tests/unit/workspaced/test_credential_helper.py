"""git's credential helper, asked by the real git: what git gets, and what the user reads when there is nothing to give."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from socketserver import StreamRequestHandler, ThreadingUnixStreamServer

import pytest

from codehub.workspaced import credential_helper
from codehub.workspaced.git_access import configuration

pytestmark = pytest.mark.needs("git")
_KNOWN = "git.example.org"
Ask = Callable[..., subprocess.CompletedProcess[str]]


class _Desk(ThreadingUnixStreamServer):
    answer = b"{}"


class _Answer(StreamRequestHandler):
    def handle(self) -> None:
        self.rfile.readline()
        assert isinstance(self.server, _Desk)
        self.wfile.write(self.server.answer)


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[_Desk]:
    with _Desk(str(tmp_path / "socket"), _Answer) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def ask(tmp_path: Path) -> Ask:
    """Return a function that runs `git credential` with CodeHub's configuration and the user's own."""
    program = f"!{sys.executable} -I -S -B {credential_helper.__file__} {tmp_path}/socket"
    (tmp_path / "codehub").write_text(configuration(program, [f"https://{_KNOWN}"], ""))

    def run(what: str, host: str, own: str = "", protocol: str = "https") -> subprocess.CompletedProcess[str]:
        (tmp_path / ".gitconfig").write_text(own)
        env = {
            "PATH": os.environ["PATH"],
            "HOME": str(tmp_path),
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_CONFIG_COUNT": "1",
            "GIT_CONFIG_KEY_0": "include.path",
            "GIT_CONFIG_VALUE_0": str(tmp_path / "codehub"),
        }
        asked = f"protocol={protocol}\nhost={host}\n" + ("username=a\npassword=b\n" if what == "reject" else "")
        words = ["git", "credential", what]
        return subprocess.run(words, input=asked, env=env, capture_output=True, text=True, check=False, timeout=60)

    return run


def test_a_known_host_gets_its_credential_and_nothing_is_printed(desk: _Desk, ask: Ask) -> None:
    desk.answer = b'{"username": "alice", "password": "secret"}'
    got = ask("fill", _KNOWN)
    assert "username=alice\npassword=secret\n" in got.stdout
    assert got.stderr == ""


@pytest.mark.parametrize("host", [_KNOWN, "elsewhere.example.org:8443"])
def test_a_missing_or_removed_credential_is_explained_in_one_line(desk: _Desk, ask: Ask, host: str) -> None:
    got = ask("fill", host)
    assert got.returncode != 0
    assert got.stderr.splitlines()[0] == (
        f"codehub: no credential for {host}. Add one with `codehub git-auth add {host}` or on your account page."
    )
    assert "`codehub git-auth add http://" + host in ask("fill", host, protocol="http").stderr


def test_a_host_whose_credential_came_just_now_gets_no_hint_and_no_password(desk: _Desk, ask: Ask) -> None:
    """A helper of the user's, such as `store`, would be given the password afterwards."""
    desk.answer = b'{"username": "alice", "password": "secret"}'
    got = ask("fill", "new.example.org")
    assert "secret" not in got.stdout
    assert "codehub:" not in got.stderr


def test_the_users_own_helper_answers_for_other_hosts_without_a_hint(desk: _Desk, ask: Ask) -> None:
    own = '[credential]\n\thelper = "!echo username=bob; echo password=own; true"\n'
    got = ask("fill", "elsewhere.example.org", own)
    assert "password=own" in got.stdout
    assert got.stderr == ""


def test_a_refused_credential_is_said_to_be_replaced(desk: _Desk, ask: Ask) -> None:
    said = ask("reject", _KNOWN).stderr
    assert said.startswith(
        f"codehub: {_KNOWN} refused the credential. Replace it with `codehub git-auth add {_KNOWN}`"
    )
    assert said.count("\n") == 1
    assert ask("reject", "elsewhere.example.org").stderr == ""


def test_the_reason_that_codehub_gives_is_printed_instead(desk: _Desk, ask: Ask) -> None:
    desk.answer = b'{"error": "the account is disabled"}'
    for host in (_KNOWN, "elsewhere.example.org"):
        assert ask("fill", host).stderr.startswith("codehub: the account is disabled\n")


def test_a_password_that_is_not_for_git_hosts_gets_no_hint(desk: _Desk, ask: Ask) -> None:
    assert "codehub:" not in ask("fill", "mail.example.org:587", protocol="smtp").stderr


def test_a_helper_that_is_not_there_is_reported(ask: Ask) -> None:
    assert "codehub: credentials are not available:" in ask("fill", _KNOWN).stderr
