"""An HTTP client that hangs up stops what it asked for: nobody searches on for a page that was closed."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from testing.sari.held import HeldRipgrep, held_sari
from testing.sari.home import TIMEOUT_S, sari_home
from testing.sari.processes import wait_until
from testing.sari.web import Web

pytestmark = pytest.mark.xdist_group("sari-http")


@pytest.fixture
def held(tmp_path: Path) -> HeldRipgrep:
    return held_sari(tmp_path, "molasses")


@pytest.fixture
def web(tmp_path: Path, held: HeldRipgrep) -> Iterator[Web]:
    with sari_home(tmp_path, held.command) as home:
        home.write("a.txt", "molasses and honey\n")
        home.environment["SARI_WORKSPACE_IDLE_SEC"] = "600"
        assert home.sari("symbols", "honey").returncode == 1
        try:
            yield Web(home)
        finally:
            held.release()


def running_calls(web: Web) -> int:
    views = web.ask("/status").json["workspaces"]
    assert isinstance(views, list)
    return int(views[0]["running_calls"])


def ask(web: Web, head: str, body: bytes = b"") -> socket.socket:
    """Send a request and do not wait for its answer."""
    sock = socket.create_connection(("127.0.0.1", web.port), timeout=TIMEOUT_S)
    lines = [head, "Host: localhost", f"Authorization: Bearer {web.token}", f"Content-Length: {len(body)}"]
    sock.sendall("\r\n".join([*lines, "Content-Type: application/json", "", ""]).encode() + body)
    return sock


def test_a_search_ends_with_the_connection_that_asked_for_it(web: Web, held: HeldRipgrep) -> None:
    with ask(web, f"GET /search?q=molasses&workspace={quote(str(web.home.workspace))} HTTP/1.1"):
        wait_until(lambda: held.waiting and running_calls(web) == 1, "the search runs")
    wait_until(lambda: not held.waiting and running_calls(web) == 0, "the search was given up, its ripgrep ended")


def test_in_the_stateless_era_hanging_up_cancels_and_in_the_others_it_does_not(web: Web, held: HeldRipgrep) -> None:
    params = {"name": "search", "arguments": {"query": "molasses"}}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).encode()
    path = f"POST /mcp?workspace={quote(str(web.home.workspace))} HTTP/1.1"
    modern = f"{path}\r\nMCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\nMcp-Name: search"
    with ask(web, modern, body):
        wait_until(lambda: held.waiting and running_calls(web) == 1, "the stateless call runs")
    wait_until(lambda: not held.waiting and running_calls(web) == 0, "it was given up")
    with ask(web, path, body):
        wait_until(lambda: held.waiting and running_calls(web) == 1, "the older call runs")
    with ask(web, modern, body):
        wait_until(lambda: len(held.waiting) == 2, "another stateless one beside it")
    # Once the second is given up, the first would have been, too.
    wait_until(lambda: running_calls(web) == 1, "only the stateless one was given up")
    assert len(held.waiting) == 1
    held.release()
    wait_until(lambda: running_calls(web) == 0, "the older call ends by itself")
