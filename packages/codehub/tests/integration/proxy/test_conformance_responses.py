"""The data path, towards the browser: what a response is when it arrives there. Raw sockets on both sides."""

from __future__ import annotations

import contextlib
import threading

import pytest

from testing.codehub.proxy import PREFIX, RunningProxy, wired
from testing.codehub.rawhttp import TIMEOUT_S, Message, Peer, ScriptedUpstream, answer

HOST = "Host: localhost:8001\r\n"
GET = f"GET {PREFIX}/ HTTP/1.1\r\n{HOST}\r\n"


def ask(proxy: RunningProxy, request: str = GET) -> Message:
    with proxy.connect() as client:
        client.send(request)
        return client.read_message(bodiless=request.startswith("HEAD"))


def test_a_body_by_length_keeps_the_connection(proxy: RunningProxy, upstream: ScriptedUpstream) -> None:
    upstream.script = answer("HTTP/1.1 200 Fine\r\nContent-Length: 3\r\nX-A: 1\r\nX-A: 2\r\n\r\nabc", times=2)
    with proxy.connect() as client:
        for _ in range(2):
            client.send(GET)
            response = client.read_message()
            assert response.start == "HTTP/1.1 200 Fine"
            assert response.all("X-A") == ["1", "2"]
            assert response.body == b"abc"
    assert upstream.connections == 1


def test_chunks_extensions_and_trailers_arrive_as_they_were(proxy: RunningProxy, upstream: ScriptedUpstream) -> None:
    body = "5;x=y\r\nhello\r\n0\r\nX-Sum: 1\r\n\r\n"
    upstream.script = answer(
        f"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n{body}", times=2
    )
    with proxy.connect() as client:
        for _ in range(2):
            client.send(GET)
            response = client.read_message()
            assert response.raw_body.decode() == body
            assert response.get("Trailer") == "X-Sum"


def test_a_body_until_close_ends_with_the_connection(proxy: RunningProxy, upstream: ScriptedUpstream) -> None:
    upstream.script = answer(b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 500_000)
    with proxy.connect() as client:
        client.send(GET)
        response = client.read_message()
        assert response.body == b"x" * 500_000
        assert response.get("Connection") == "close"


def test_an_http_1_0_upstream_is_understood(proxy: RunningProxy, upstream: ScriptedUpstream) -> None:
    upstream.script = answer("HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok")
    with proxy.connect() as client:
        for _ in range(2):
            client.send(GET)
            assert client.read_message().body == b"ok"
    assert upstream.connections == 2


def test_chunks_are_decoded_for_an_http_1_0_client(proxy: RunningProxy, upstream: ScriptedUpstream) -> None:
    upstream.script = answer("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n")
    response = ask(proxy, f"GET {PREFIX}/ HTTP/1.0\r\n{HOST}\r\n")
    assert response.get("Transfer-Encoding") is None
    assert response.body == b"abcde"


def test_head_has_the_length_and_no_body(proxy: RunningProxy, upstream: ScriptedUpstream) -> None:
    def script(peer: Peer) -> None:
        peer.read_head()
        peer.send("HTTP/1.1 200 OK\r\nContent-Length: 1234\r\n\r\n")
        peer.read_head()
        peer.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")

    upstream.script = script
    with proxy.connect() as client:
        client.send(f"HEAD {PREFIX}/ HTTP/1.1\r\n{HOST}\r\n")
        assert client.read_message(bodiless=True).get("Content-Length") == "1234"
        client.send(GET)
        assert client.read_message().body == b"ok"
    assert upstream.connections == 1


@pytest.mark.parametrize("status", [204, 304])
def test_a_status_without_a_body_ends_with_its_head(
    proxy: RunningProxy, upstream: ScriptedUpstream, status: int
) -> None:
    upstream.script = answer(f'HTTP/1.1 {status} X\r\nETag: "e"\r\n\r\n', times=2)
    with proxy.connect() as client:
        for _ in range(2):
            client.send(GET)
            response = client.read_message()
            assert (response.status, response.get("ETag")) == (status, '"e"')


def test_early_hints_pass_before_the_answer(proxy: RunningProxy, upstream: ScriptedUpstream) -> None:
    hints = "HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\n\r\n"
    upstream.script = answer(hints * 2 + "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
    with proxy.connect() as client:
        client.send(GET)
        for _ in range(2):
            assert client.read_until(b"\r\n\r\n").startswith(b"HTTP/1.1 103 Early Hints\r\nLink: </a.css>")
        assert client.read_message().body == b"ok"


@pytest.mark.parametrize("version", ["HTTP/1.1", "HTTP/1.0"])
def test_a_flood_of_interim_answers_is_cut_off(proxy: RunningProxy, upstream: ScriptedUpstream, version: str) -> None:
    """Reading them would keep the proxy busy for as long as the workspace sends, also when the browser has gone."""
    ended = threading.Event()

    def flood(peer: Peer) -> None:
        peer.read_head()
        with contextlib.suppress(OSError):
            while True:
                peer.send(b"HTTP/1.1 100 \r\n\r\n" * 1000)
        ended.set()

    upstream.script = flood
    with proxy.connect() as client:
        client.send(GET.replace("HTTP/1.1", version))
        statuses = (client.read_message(bodiless=True).status for _ in range(1000))
        assert next((status for status in statuses if status != 100), None) == 502
    assert ended.wait(60)


def test_hop_by_hop_headers_of_an_answer_stay_on_their_hop(proxy: RunningProxy, upstream: ScriptedUpstream) -> None:
    hop = "Connection: keep-alive, X-Private\r\nX-Private: 1\r\nKeep-Alive: 5\r\nProxy-Authenticate: x\r\n"
    upstream.script = answer(f"HTTP/1.1 200 OK\r\n{hop}X-Public: 2\r\nContent-Length: 2\r\n\r\nok")
    response = ask(proxy)
    names = {name.lower() for name, _ in response.headers}
    assert names & {"connection", "x-private", "keep-alive", "proxy-authenticate"} == set()
    assert (response.get("X-Public"), response.body) == ("2", b"ok")


def test_a_range_answer_passes(proxy: RunningProxy, upstream: ScriptedUpstream) -> None:
    upstream.script = answer("HTTP/1.1 206 Partial\r\nContent-Range: bytes 0-1/9\r\nContent-Length: 2\r\n\r\nab")
    response = ask(proxy)
    assert (response.status, response.get("Content-Range"), response.body) == (206, "bytes 0-1/9", b"ab")


def test_events_arrive_one_by_one_and_silence_between_them_is_normal(
    proxy: RunningProxy, upstream: ScriptedUpstream
) -> None:
    seen = threading.Semaphore(0)

    def script(peer: Peer) -> None:
        peer.read_head()
        peer.send("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        for n in range(3):
            peer.send(f"9\r\ndata: {n}\n\n\r\n")
            assert seen.acquire(timeout=TIMEOUT_S)
        peer.send("0\r\n\r\n")

    upstream.script = script
    with proxy.connect() as client:
        client.send(GET)
        client.read_head()
        for n in range(3):
            assert client.read_until(b"\n\n\r\n") == f"9\r\ndata: {n}\n\n\r\n".encode()
            proxy.skip(1000)
            seen.release()
        assert client.read_until(b"0\r\n\r\n")


@pytest.mark.parametrize(
    ("location", "mapped"),
    [
        ("/login?next=/x", f"{PREFIX}/login?next=/x"),
        ("./?folder=/home", "./?folder=/home"),
        ("../up", "../up"),
        (f"{PREFIX}/lab", f"{PREFIX}/lab"),
        ("http://localhost:8001/a", f"{PREFIX}/a"),
        ("//localhost:8001/a", f"{PREFIX}/a"),
        ("http://localhost:8001", f"{PREFIX}/"),
        ("https://elsewhere.example/a", "https://elsewhere.example/a"),
        (f"{PREFIX}extra/x", f"{PREFIX}{PREFIX}extra/x"),
    ],
)
def test_a_redirect_stays_inside_the_workspace(
    proxy: RunningProxy, upstream: ScriptedUpstream, location: str, mapped: str
) -> None:
    upstream.script = answer(f"HTTP/1.1 302 Found\r\nLocation: {location}\r\nContent-Length: 0\r\n\r\n")
    assert ask(proxy).get("Location") == mapped


@pytest.mark.parametrize(
    ("cookie", "mapped"),
    [
        ("a=1; Path=/", f"a=1; Path={PREFIX}/"),
        ("a=1", f"a=1; Path={PREFIX}/"),
        ("a=1; Domain=localhost; HttpOnly; Path=/x", f"a=1; HttpOnly; Path={PREFIX}/x"),
        (f"a=1; path={PREFIX}/lab", f"a=1; Path={PREFIX}/lab"),
        ("session=evil; Path=/", None),
        ("__Host-session=evil; Path=/; Secure", None),
        ("codehub_ws=evil; Path=/", None),
        ("CODEHUB_WS=evil", None),
        ("=codehub_ws=evil", None),
    ],
)
def test_a_cookie_stays_inside_the_workspace_and_is_never_ours(
    proxy: RunningProxy, upstream: ScriptedUpstream, cookie: str, mapped: str | None
) -> None:
    upstream.script = answer(
        f"HTTP/1.1 200 OK\r\nSet-Cookie: {cookie}\r\nSet-Cookie: z=9\r\nContent-Length: 0\r\n\r\n"
    )
    expected = [*([mapped] if mapped else []), f"z=9; Path={PREFIX}/"]
    assert ask(proxy).all("Set-Cookie") == expected


@pytest.mark.parametrize(
    "line",
    [
        "Service-Worker-Allowed: /",
        'Clear-Site-Data: "cookies"',
        "Strict-Transport-Security: max-age=31536000; includeSubDomains",
        'Alt-Svc: h2=":4444"',
        'NEL: {"report_to": "x", "max_age": 86400}',
        'Report-To: {"group": "x", "max_age": 86400, "endpoints": [{"url": "https://elsewhere.example/"}]}',
    ],
)
def test_a_workspace_does_not_speak_for_its_host(proxy: RunningProxy, upstream: ScriptedUpstream, line: str) -> None:
    upstream.script = answer(f"HTTP/1.1 200 OK\r\n{line}\r\nX-Kept: 1\r\nContent-Length: 0\r\n\r\n")
    answered = ask(proxy)
    assert answered.get(line.partition(":")[0]) is None
    assert answered.get("X-Kept") == "1"


@pytest.mark.parametrize(
    "raw",
    [
        "nonsense\r\n\r\n",
        "HTTP/1.1 200 OK\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
        "HTTP/1.1 200 OK\r\nX: a\rSet-Cookie: session=evil\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nX: a\nSet-Cookie: session=evil\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nX: a\r\n Set-Cookie: session=evil\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 200 OK\rSet-Cookie: session=evil\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nSet-Cookie : session=evil\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: +1\r\n\r\na",
        "HTTP/1.1 200 OK\r\nX: " + "y" * 70_000 + "\r\n\r\n",
        "HTTP/1.1 101 Switching\r\nUpgrade: x\r\n\r\n",
        "",
    ],
)
def test_a_malformed_answer_is_502(proxy: RunningProxy, upstream: ScriptedUpstream, raw: str) -> None:
    upstream.script = answer(raw)
    assert ask(proxy).status == 502


@pytest.mark.parametrize(
    "raw",
    [
        "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nab",
    ],
)
def test_an_answer_that_breaks_off_is_not_taken_for_whole(
    proxy: RunningProxy, upstream: ScriptedUpstream, raw: str
) -> None:
    upstream.script = answer(raw)
    with proxy.connect() as client:
        client.send(GET)
        with pytest.raises((ConnectionError, EOFError)):
            client.read_message()


def test_more_than_was_promised_never_answers_the_next_request(
    proxy: RunningProxy, upstream: ScriptedUpstream
) -> None:
    upstream.script = answer(
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil"
    )
    with proxy.connect() as client:
        for _ in range(2):
            client.send(GET)
            assert client.read_message().body == b"ok"
    assert upstream.connections == 2


def test_the_prefix_kept_maps_addresses_the_same() -> None:
    with wired(strip=False) as (proxy, upstream):
        upstream.script = answer(f"HTTP/1.1 302 Found\r\nLocation: {PREFIX}/lab?\r\nContent-Length: 0\r\n\r\n")
        assert ask(proxy).get("Location") == f"{PREFIX}/lab?"
