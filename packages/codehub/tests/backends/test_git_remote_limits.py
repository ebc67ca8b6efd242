"""Branches of a repository on a hostile server: git's time, memory and output on this machine are bounded."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from codehub.adapters import git_remote
from codehub.adapters.git_remote import GitRemote
from codehub.domain.errors import Invalid
from codehub.domain.repository import parse_url

pytestmark = [pytest.mark.timeout(300), pytest.mark.needs("git")]
_HEAD = b"001e# service=git-upload-pack\n0000"
_PIECE = b"0043" + b"a" * 40 + b" refs/heads/branch-123\n"


@contextmanager
def hostile_server(most_bytes: int, *, ends: bool = False) -> Iterator[str]:
    """Advertise branches: so many bytes at once, and then the end, or nothing until the client hangs up."""
    over = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "application/x-git-upload-pack-advertisement")
            self.end_headers()
            chunk, sent = _PIECE * 16_384, 0
            try:
                self.wfile.write(_HEAD)
                while sent < most_bytes:
                    self.wfile.write(chunk)
                    sent += len(chunk)
                if ends:
                    self.wfile.write(b"0000")
                else:
                    over.wait(120)
            except OSError:
                pass

        def log_message(self, *arguments: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/endless.git"
    finally:
        over.set()
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture(autouse=True)
def loopback_is_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def here(self: GitRemote, host: str, port: int) -> str:
        return "127.0.0.1"

    monkeypatch.setattr(GitRemote, "_checked_address", here)


async def test_an_answer_that_does_not_come_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(git_remote, "_TIMEOUT_S", 1.0)
    with hostile_server(0) as url, pytest.raises(Invalid, match="does not answer"):
        await GitRemote().branches(parse_url(url), "", "")


async def test_more_branches_than_a_dialog_can_show_are_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    with hostile_server(2 << 20, ends=True) as url:
        with pytest.raises(Invalid, match="too many branches"):
            await GitRemote().branches(parse_url(url), "", "")
        monkeypatch.setattr(git_remote, "_MOST_OUTPUT", 64 << 20)
        assert (await GitRemote().branches(parse_url(url), "", "")).names[:1] == ("branch-123",)


async def test_an_answer_without_an_end_takes_no_more_memory_than_allowed() -> None:
    limit = git_remote._MOST_MEMORY_KIB << 10
    with hostile_server(2 * limit) as url, pytest.raises(Invalid, match="sends too much"):
        await GitRemote().branches(parse_url(url), "", "")


class Slow:
    """A git server whose answers wait until they may go on: who is being answered, and in which order they came."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.may_answer = threading.Semaphore(0)

    @contextmanager
    def serving(self) -> Iterator[str]:
        slow = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                slow.asked.append(self.path.split("/")[1])
                slow.may_answer.acquire()
                self.send_error(404)

            def log_message(self, *arguments: object) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            self.may_answer.release(100)
            server.shutdown()
            server.server_close()
            thread.join()


async def test_four_run_at_a_time_and_users_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(git_remote, "_TIMEOUT_S", 120.0)
    slow, remote = Slow(), GitRemote()

    async def ask(base: str, user: str) -> None:
        with pytest.raises(Invalid, match="no repository"):
            await remote.branches(parse_url(f"{base}/{user}/x.git"), "", "", user)

    async def until_asked(number: int) -> None:
        async with asyncio.timeout(120):
            while len(slow.asked) < number:
                await asyncio.sleep(0.01)

    with slow.serving() as base:
        crowd = [asyncio.create_task(ask(base, "crowd")) for _ in range(6)]
        await until_asked(4)
        other = asyncio.create_task(ask(base, "other"))
        for number in (5, 6, 7):
            # Nothing is asked beyond those that wait for an answer, until one of them has it.
            assert len(slow.asked) == number - 1
            slow.may_answer.release()
            await until_asked(number)
        slow.may_answer.release(100)
        await asyncio.gather(*crowd, other)
    assert slow.asked == ["crowd"] * 4 + ["other"] + ["crowd"] * 2
