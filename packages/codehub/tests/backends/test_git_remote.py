"""Where git connects when CodeHub lists the branches of a user's URL: to the address that was checked, nowhere else."""

from __future__ import annotations

import contextlib
import http.server
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from codehub.adapters import git_remote
from codehub.adapters.git_remote import GitRemote

pytestmark = pytest.mark.needs("git")


@contextlib.contextmanager
def server(location: str = "") -> Iterator[tuple[int, list[str]]]:
    """An HTTP server without repositories, or that redirects: its port, and the hosts and paths it was asked for."""
    asked: list[str] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(f"{self.headers['Host']}{self.path}")
            self.send_response(302 if location else 404)
            if location:
                self.send_header("Location", location + self.path)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            return

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as made:
        thread = threading.Thread(target=made.serve_forever, daemon=True)
        thread.start()
        try:
            yield made.server_port, asked
        finally:
            made.shutdown()
            thread.join()


def ask(url: str, pin: str, token: str = "") -> tuple[int, str]:
    with tempfile.TemporaryDirectory() as folder:  # git runs as nobody, who may not enter pytest's own
        Path(folder).chmod(0o755)
        return GitRemote()._run(url, pin, Path(folder), "ada", token)


def test_git_asks_the_address_that_was_checked_whatever_the_name_means_later() -> None:
    """Here the name means nothing at all: an answer from DNS is not used."""
    with server() as (port, asked):
        code, said = ask(f"http://rebound.invalid:{port}/x.git", f"rebound.invalid:{port}:127.0.0.1")
    assert code != 0
    assert "not found" in said
    assert asked == [f"rebound.invalid:{port}/x.git/info/refs?service=git-upload-pack"]


def test_no_redirect_is_followed() -> None:
    with server() as (inner, reached), server(f"http://127.0.0.1:{inner}") as (port, asked):
        code, said = ask(f"http://git.invalid:{port}/x.git", f"git.invalid:{port}:127.0.0.1", "a token")
    assert code != 0
    assert "302" in said, said
    assert len(asked) == 1
    assert reached == []


@pytest.mark.parametrize("kind", ["ext", "file"])
def test_git_itself_refuses_what_runs_a_command_or_reads_this_machine(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No such URL is accepted (test_repository.py). If one were, git would still do nothing with it."""
    with tempfile.TemporaryDirectory() as folder:
        place, ran = Path(folder), Path(folder, "ran")
        place.chmod(0o777)
        subprocess.run(["git", "init", "-q", "--bare", f"{folder}/local.git"], check=True)
        url = f"ext::touch {ran}" if kind == "ext" else f"file://{folder}/local.git"
        code, said = ask(url, "")
        assert code != 0
        assert f"transport '{kind}' not allowed" in said
        assert not ran.exists()
        # Only the list of protocols keeps it from that.
        allowed = {**git_remote._environment(), "GIT_ALLOW_PROTOCOL": kind}
        monkeypatch.setattr(git_remote, "_environment", lambda: allowed)
        assert "not allowed" not in ask(url, "")[1]
        assert ran.exists() == (kind == "ext")


def test_no_configuration_of_this_machine_sends_git_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    with server() as (elsewhere, reached), server() as (port, asked):
        monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
        monkeypatch.setenv("GIT_CONFIG_KEY_0", f"url.http://127.0.0.1:{elsewhere}/.insteadOf")
        monkeypatch.setenv("GIT_CONFIG_VALUE_0", f"http://git.invalid:{port}/")
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{elsewhere}")
        ask(f"http://git.invalid:{port}/x.git", f"git.invalid:{port}:127.0.0.1")
    assert len(asked) == 1
    assert reached == []
