"""The daemon's HTTP side, asked as strangers, other sites, scripts and pages ask it."""

from __future__ import annotations

import contextlib
import json
import select
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import quote, urlencode

import pytest

from sari.web.guard import Guard, one_time_key
from testing.sari.home import TIMEOUT_S, sari_home
from testing.sari.processes import wait_until
from testing.sari.web import Web

pytestmark = pytest.mark.xdist_group("sari-http")


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Web]:
    with sari_home(tmp_path_factory.mktemp("http")) as home:
        home.environment["SARI_WORKSPACE_IDLE_SEC"] = "0"
        home.write("src/main.py", "def needle():\n    return 'naïve'\n")
        home.start()
        yield Web(home)


def in_workspace(web: Web, path: str, **parameters: str) -> str:
    return f"{path}?{urlencode({'workspace': str(web.home.workspace), **parameters})}"


def test_health_is_for_everybody_and_says_nothing_of_what_is_indexed(web: Web) -> None:
    answer = web.ask("/health", token=None)
    assert answer.status == 200
    assert set(answer.json) == {"status", "name", "version"}


@pytest.mark.parametrize("token", [None, "wrong", ""])
@pytest.mark.parametrize("path", ["/", "/status", "/search?q=x", "/symbols?q=x", "/mcp", "/app.js", "/nothing"])
def test_nothing_else_is_served_without_the_token(web: Web, path: str, token: str | None) -> None:
    answer = web.ask(path, token=token)
    assert answer.status == 401
    assert b"needle" not in answer.body
    assert str(web.home.workspace).encode() not in answer.body


@pytest.mark.parametrize(
    ("header", "value", "status"),
    [
        ("Host", "evil.example", 421),
        ("Host", "127.0.0.1.evil.example:80", 421),
        ("Origin", "https://evil.example", 403),
        ("Origin", "null", 403),
        ("Origin", "http://127.0.0.1:1", 403),
        ("Sec-Fetch-Site", "cross-site", 403),
        ("Sec-Fetch-Site", "same-site", 403),
    ],
)
def test_other_names_and_other_sites_are_refused_even_with_the_token(
    web: Web, header: str, value: str, status: int
) -> None:
    assert web.ask("/status", **{header.replace("-", "_"): value}).status == status


def test_our_own_origin_and_localhost_are_welcome(web: Web) -> None:
    host = f"localhost:{web.port}"
    assert web.ask("/status", Host=host, Origin=f"http://{host}", Sec_Fetch_Site="same-origin").status == 200


def test_state_changes_by_post_only(web: Web) -> None:
    for path in ("/open", "/rescan", "/signout"):
        answer = web.ask(path)
        assert answer.status == 405
        assert answer.headers["allow"] == "POST"
    assert web.ask("/search?q=x", "POST", {}).status == 405
    assert web.ask("/open", "POST", {"workspace": "relative"}).status == 400
    assert web.ask("/open", "POST", {}).status == 400


def test_a_page_opens_a_workspace_searches_it_and_leaves(web: Web) -> None:
    assert web.ask(in_workspace(web, "/search", q="needle")).status == 404, "nobody uses it yet"
    cookie, key = web.sign_in()
    workspace = {"workspace": str(web.home.workspace)}
    assert web.ask("/open", "POST", workspace, token=None, Cookie=cookie, X_Sari_Page_Key=key).status == 200
    answer = web.ask(in_workspace(web, "/search", q="needle"), token=None, Cookie=cookie, X_Sari_Page_Key=key)
    assert answer.json["matches"] == [{"path": "src/main.py", "line": 1, "text": "def needle():"}]
    assert web.ask(f"/search?q={quote('naïve')}").json["total"] == 1, "the only open workspace need not be named"
    assert web.ask("/search?q=(&mode=regex").status == 400
    assert web.ask("/search").status == 400
    assert web.ask("/search?q=x&context=many").status == 400
    status = web.ask("/status").json
    assert isinstance(status["workspaces"], list)
    assert [view["root"] for view in status["workspaces"]] == [str(web.home.workspace)]
    assert isinstance(status["sessions"], list)
    assert "web page" in [session["client"] for session in status["sessions"]]
    roots = json.loads(web.home.sari("roots", "--json").stdout)
    assert [(root["root"], root["http"]) for root in roots] == [
        (str(web.home.workspace), f"http://127.0.0.1:{web.port}/")
    ]
    left = web.ask("/signout", "POST", {}, token=None, Cookie=cookie, X_Sari_Page_Key=key)
    assert "Max-Age=0" in left.headers["set-cookie"]
    deadline = time.monotonic() + TIMEOUT_S
    while web.ask(in_workspace(web, "/search", q="needle")).status != 404:
        assert time.monotonic() < deadline, "the workspace of nobody is still open"


def test_a_key_signs_in_once_and_only_if_it_is_genuine(web: Web) -> None:
    key = one_time_key(web.token, time.time())
    assert web.ask("/signin", "POST", {"key": key}, token=None).status == 200
    assert web.ask("/signin", "POST", {"key": key}, token=None).status == 401
    for forged in (
        "",
        "x.9999999999.00",
        one_time_key("other", time.time()),
        one_time_key(web.token, time.time() - 999),
    ):
        assert web.ask("/signin", "POST", {"key": forged}, token=None).status in (400, 401)
    cookie, page_key = web.sign_in()
    name, _, value = cookie.partition("=")
    forged = f"{name}={value[:-1]}x"
    assert web.ask("/status", token=None, Cookie=forged, X_Sari_Page_Key=page_key).status == 401
    assert web.ask("/status", token=None, Cookie=cookie, X_Sari_Page_Key=page_key).status == 200
    for wrong in (value, page_key):
        assert web.ask("/signin", "POST", {"key": wrong}, token=None).status == 401, "neither is a key to sign in"


def test_a_cookie_alone_opens_nothing(web: Web) -> None:
    """Cookies ignore ports: every listener of 127.0.0.1 may hear this one."""
    cookie, key = web.sign_in()
    other = web.sign_in()[1]
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    workspace = {"workspace": str(web.home.workspace)}
    for wrong in ("", other, cookie.partition("=")[2], key[:-1] + "x"):
        for path in ("/status", "/search?q=needle", "/read?path=src/main.py", "/doctor"):
            assert web.ask(path, token=None, Cookie=cookie, X_Sari_Page_Key=wrong).status == 401
        for path, body in (("/open", workspace), ("/rescan", workspace), ("/mcp", call)):
            assert web.ask(path, "POST", body, token=None, Cookie=cookie, X_Sari_Page_Key=wrong).status == 401
    assert web.ask("/status", token=None, X_Sari_Page_Key=key).status == 401
    assert web.ask("/", token=None, Cookie=cookie).status == 200, "the page itself, which holds no data"


def test_what_a_browser_sent_to_another_port_is_worth_nothing_at_this_one(web: Web) -> None:
    other = Guard(web.token, web.port + 1)
    signed_in = other.sign_in(one_time_key(web.token, time.time()))
    assert signed_in is not None
    cookie, key = signed_in
    value = cookie.partition(";")[0].partition("=")[2]
    assert web.ask("/status", token=None, Cookie=f"sari_{web.port}={value}", X_Sari_Page_Key=key).status == 401


def test_the_page_loads_nothing_from_elsewhere_and_cannot_be_framed(web: Web) -> None:
    for answer in (web.ask("/"), web.ask("/", token=None)):
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert b"http://" not in answer.body
        assert b"https://" not in answer.body
    assert web.ask("/app.js").headers["content-type"].startswith("text/javascript")


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"nonsense\r\n\r\n", 400),
        (b"GET / HTTP/9.9\r\nHost: localhost\r\n\r\n", 400),
        (b"GET http://localhost/health HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        (b"GET /health HTTP/1.1\r\nHost: localhost\r\nHost: evil\r\n\r\n", 400),
        (b"GET /health HTTP/1.1\r\n\r\n", 421),
        (b"GET /health HTTP/1.1\r\nHost: localhost\r\nbad header: x\r\n\r\n", 400),
        (b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 40_000, 431),
        (b"POST /signin HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999\r\n\r\n", 413),
        (b"POST /signin HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n", 400),
        (b"POST /signin HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 411),
        (b"GET /health?" + b"&".join([b"x=1"] * 101) + b" HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        (b"GET //[ HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        (b"GET /health HTTP/1.1\r\nHost: localhost\r\nOrigin: http://[\r\n\r\n", 403),
        (b"POST /signin HTTP/1.1\r\nHost: localhost\r\nContent-Length: " + b"1" * 5_000 + b"\r\n\r\n", 400),
        # Nobody needs more to sign in, and the body is read before the key is known.
        (b"POST /signin HTTP/1.1\r\nHost: localhost\r\nContent-Length: 20000\r\n\r\n", 413),
    ],
)
def test_what_is_no_request_is_refused_and_harms_nobody(web: Web, data: bytes, status: int) -> None:
    request = data.replace(b"HTTP/1.1\r\n", b"HTTP/1.1\r\nConnection: close\r\n", 1)
    assert web.raw(request).startswith(f"HTTP/1.1 {status} ".encode())
    assert web.ask("/health", token=None).status == 200


def test_two_requests_in_one_packet_get_two_answers(web: Web) -> None:
    head = b"GET /health HTTP/1.1\r\nHost: localhost\r\n"
    assert web.raw(head + b"\r\n" + head + b"Connection: close\r\n\r\n").count(b"HTTP/1.1 200 OK") == 2


def test_strangers_who_read_no_answer_lock_nobody_out(web: Web) -> None:
    """Other users of the machine, who have no token: each of 128 connections was served until it read."""
    asking = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n" * 400

    def ask_without_reading(stranger: socket.socket) -> None:
        stranger.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        stranger.connect(("127.0.0.1", web.port))
        stranger.setblocking(False)
        # Until the server waits for this peer to read.
        while select.select([], [stranger], [], 2)[1]:
            try:
                stranger.send(asking)
            except OSError:
                return

    with contextlib.ExitStack() as kept, ThreadPoolExecutor(130) as threads:
        strangers = [kept.enter_context(socket.socket()) for _ in range(130)]
        list(threads.map(ask_without_reading, strangers))
        assert web.ask("/status").status == 200


def test_a_crowd_of_silent_connections_is_bounded_and_passes(web: Web) -> None:
    crowd = [socket.create_connection(("127.0.0.1", web.port), timeout=TIMEOUT_S) for _ in range(150)]
    try:
        readable, _, _ = select.select(crowd, [], [], TIMEOUT_S)
        assert readable[0].recv(64) == b"", "who came first without asking anything is disconnected"
        assert web.ask("/status").status == 200, "and the owner is served beside the others"
    finally:
        for sock in crowd:
            sock.close()
    deadline = time.monotonic() + TIMEOUT_S
    while web.ask("/health", token=None).status != 200:
        assert time.monotonic() < deadline


def test_a_taken_http_port_is_replaced_by_another_that_is_written_down(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as stranger, sari_home(tmp_path) as home:
        home.environment["SARI_HTTP_PORT"] = str(stranger.getsockname()[1])
        home.write("a.txt", "needle\n")
        home.environment["SARI_WORKSPACE_IDLE_SEC"] = "600"
        assert home.sari("symbols", "needle").returncode == 1
        other = tmp_path / "second"
        (other / ".git").mkdir(parents=True)
        home.sari("symbols", "needle", "--workspace", str(other))
        port = home.http_port
        assert port != stranger.getsockname()[1]

        def written() -> dict[str, int]:
            registry = json.loads((home.home / ".local/share/sari/server.json").read_text())
            return {root: entry["http_port"] for root, entry in registry["workspaces"].items()}

        # One binding for the daemon, in the entry of each of its workspaces.
        wait_until(lambda: written() == {str(home.workspace): port, str(other): port}, "both are written down")
        assert Web(home).ask("/health", token=None).status == 200
