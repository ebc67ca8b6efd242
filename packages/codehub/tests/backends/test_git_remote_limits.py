"""Branches of a repository on a hostile server: git's time, memory and output on this machine are bounded."""

from __future__ import annotations

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
def hostile_server(most_bytes: int) -> Iterator[str]:
    """Advertise branches without an end: so many bytes at once, and then nothing, until the client hangs up."""
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


async def test_an_answer_without_an_end_takes_no_more_memory_than_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def here(self: GitRemote, host: str, port: int) -> str:
        return "127.0.0.1"  # loopback is refused otherwise

    monkeypatch.setattr(GitRemote, "_checked_address", here)
    limit = git_remote._MOST_MEMORY_KIB << 10
    with hostile_server(2 * limit) as url, pytest.raises(Invalid, match="sends too much"):
        await GitRemote().branches(parse_url(url), "", "")
