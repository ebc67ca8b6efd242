"""The data path, towards the workspace: what a request is when it arrives there. Raw sockets on both sides."""

from __future__ import annotations

import pytest

from testing.codehub.proxy import PREFIX, RunningProxy, wired
from testing.codehub.rawhttp import Message, Peer, ScriptedUpstream, answer

HOST = "Host: localhost:8001\r\n"
OK = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


def seen(response: Message) -> tuple[str, list[tuple[str, str]], bytes]:
    """What the echoing upstream got: request line, headers, body as it came."""
    head, _, body = response.body.partition(b"\r\n\r\n")
    start, *lines = head.decode("latin-1").split("\r\n")
    return start, [(n, v.strip()) for n, _, v in (line.partition(":") for line in lines)], body


def ask(proxy: RunningProxy, request: str | bytes) -> Message:
    with proxy.connect() as client:
        client.send(request)
        return client.read_message()


def values(headers: list[tuple[str, str]], name: str) -> list[str]:
    return [value for key, value in headers if key.lower() == name.lower()]


def test_the_prefix_is_stripped_and_the_query_kept(proxy: RunningProxy) -> None:
    start, _, _ = seen(ask(proxy, f"GET {PREFIX}/a%20b/c?x=1&y=%2F HTTP/1.1\r\n{HOST}\r\n"))
    assert start == "GET /a%20b/c?x=1&y=%2F HTTP/1.1"


def test_the_prefix_is_kept_for_a_profile_that_wants_it() -> None:
    with wired(strip=False) as (proxy, _):
        start, _, _ = seen(ask(proxy, f"GET {PREFIX}/lab?x HTTP/1.1\r\n{HOST}\r\n"))
    assert start == f"GET {PREFIX}/lab?x HTTP/1.1"


def test_an_absolute_target_is_the_same_as_a_path(proxy: RunningProxy) -> None:
    start, _, _ = seen(ask(proxy, f"GET http://localhost:8001{PREFIX}/x HTTP/1.1\r\n{HOST}\r\n"))
    assert start == "GET /x HTTP/1.1"


def test_forwarded_headers_say_who_asked_and_a_client_cannot_forge_them(proxy: RunningProxy) -> None:
    forged = (
        "X-Forwarded-For: 1.2.3.4\r\nX-Forwarded-Host: evil\r\nX-Forwarded-Proto: https\r\nForwarded: for=9.9.9.9\r\n"
    )
    forged += "X-Forwarded-Prefix: /evil\r\nX-Real-IP: 1.2.3.4\r\n"
    _, headers, _ = seen(ask(proxy, f"GET {PREFIX}/ HTTP/1.1\r\n{HOST}{forged}\r\n"))
    assert values(headers, "X-Forwarded-For") == ["127.0.0.1"]
    assert values(headers, "X-Forwarded-Host") == ["localhost:8001"]
    assert values(headers, "X-Forwarded-Proto") == ["http"]
    assert values(headers, "X-Forwarded-Prefix") == [PREFIX]
    assert values(headers, "Host") == ["localhost:8001"]
    assert not values(headers, "Forwarded")
    assert not values(headers, "X-Real-IP")


@pytest.mark.parametrize("name", ["X_Forwarded_For", "x-forwarded_host", "Content_Length", "Transfer_Encoding"])
def test_underscores_do_not_forge_a_header(proxy: RunningProxy, name: str) -> None:
    """Servers behind CGI-like interfaces read `_` as `-`."""
    _, headers, _ = seen(ask(proxy, f"GET {PREFIX}/ HTTP/1.1\r\n{HOST}{name}: 1.2.3.4\r\nX_Own: 1\r\n\r\n"))
    assert not values(headers, name)
    assert values(headers, "X_Own") == ["1"]


def test_hop_by_hop_headers_stay_on_their_hop(proxy: RunningProxy) -> None:
    hop = "Connection: keep-alive, X-Private\r\nX-Private: 1\r\nKeep-Alive: 5\r\nProxy-Authorization: x\r\n"
    hop += "Proxy-Connection: x\r\n"
    _, headers, _ = seen(ask(proxy, f"GET {PREFIX}/ HTTP/1.1\r\n{HOST}{hop}X-Public: 2\r\n\r\n"))
    names = {name.lower() for name, _ in headers}
    assert names & {"connection", "keep-alive", "x-private", "proxy-authorization", "proxy-connection"} == set()
    assert values(headers, "X-Public") == ["2"]


def test_connection_cannot_take_away_what_makes_the_message(proxy: RunningProxy) -> None:
    head = f"POST {PREFIX}/ HTTP/1.1\r\n{HOST}Connection: content-length, host, x-forwarded-for\r\n"
    request = f"{head}Content-Length: 3\r\n\r\nabc"
    _, headers, body = seen(ask(proxy, request))
    assert values(headers, "Content-Length") == ["3"]
    assert values(headers, "Host") == ["localhost:8001"]
    assert values(headers, "X-Forwarded-For") == ["127.0.0.1"]
    assert body == b"abc"


def test_repeated_headers_stay_repeated_and_in_order(proxy: RunningProxy) -> None:
    _, headers, _ = seen(ask(proxy, f"GET {PREFIX}/ HTTP/1.1\r\n{HOST}X-A: 1\r\nX-B: b\r\nX-A: 2\r\nx-a: 3\r\n\r\n"))
    assert values(headers, "X-A") == ["1", "2", "3"]


def test_nothing_of_ours_goes_upstream(proxy: RunningProxy) -> None:
    cookies = "Cookie: a=1; session=s; codehub_ws=w; __Host-session=h; b=2\r\nCookie: codehub_nonce=n; c=3\r\n"
    _, headers, _ = seen(
        ask(proxy, f"GET {PREFIX}/ HTTP/1.1\r\n{HOST}{cookies}Authorization: Bearer cht_secret\r\n\r\n")
    )
    assert values(headers, "Cookie") == ["a=1; b=2; c=3"]
    assert not values(headers, "Authorization")
    assert "cht_secret" not in repr(headers)


def test_the_workspaces_own_authorization_goes_through(proxy: RunningProxy) -> None:
    _, headers, _ = seen(ask(proxy, f"GET {PREFIX}/ HTTP/1.1\r\n{HOST}Authorization: Basic abc\r\n\r\n"))
    assert values(headers, "Authorization") == ["Basic abc"]


@pytest.mark.parametrize("split", [1, 2, 7, 40])
def test_a_head_may_arrive_in_pieces(proxy: RunningProxy, split: int) -> None:
    raw = f"GET {PREFIX}/piece HTTP/1.1\r\n{HOST}\r\n".encode()
    with proxy.connect() as client:
        for at in range(0, len(raw), split):
            client.send(raw[at : at + split])
        assert seen(client.read_message())[0] == "GET /piece HTTP/1.1"


def test_a_body_by_length_arrives_whole(proxy: RunningProxy) -> None:
    body = bytes(range(256)) * 4096
    request = f"POST {PREFIX}/ HTTP/1.1\r\n{HOST}Content-Length: {len(body)}\r\n\r\n".encode() + body
    _, headers, got = seen(ask(proxy, request))
    assert values(headers, "Content-Length") == [str(len(body))]
    assert got == body


def test_a_chunked_body_stays_chunked_with_its_extensions_and_trailers(proxy: RunningProxy) -> None:
    body = "5;name=value\r\nhello\r\nA\r\n0123456789\r\n0\r\nX-Digest: abc\r\n\r\n"
    head = f"POST {PREFIX}/ HTTP/1.1\r\n{HOST}Transfer-Encoding: chunked\r\nTrailer: X-Digest\r\nTE: trailers\r\n\r\n"
    _, headers, got = seen(ask(proxy, head + body))
    assert got.decode() == body
    assert values(headers, "Trailer") == ["X-Digest"]
    assert values(headers, "TE") == ["trailers"]


@pytest.mark.parametrize("split", [1, 3, 5])
def test_a_chunked_body_may_arrive_in_any_pieces(proxy: RunningProxy, split: int) -> None:
    body = b"5\r\nhello\r\n1\r\n!\r\n0\r\n\r\n"
    with proxy.connect() as client:
        client.send(f"POST {PREFIX}/ HTTP/1.1\r\n{HOST}Transfer-Encoding: chunked\r\n\r\n")
        for at in range(0, len(body), split):
            client.send(body[at : at + split])
        assert seen(client.read_message())[2] == body


def test_pipelined_requests_are_answered_in_order(proxy: RunningProxy) -> None:
    with proxy.connect() as client:
        one = f"GET {PREFIX}/1 HTTP/1.1\r\n{HOST}\r\n"
        two = f"POST {PREFIX}/2 HTTP/1.1\r\n{HOST}Content-Length: 3\r\n\r\nabc"
        client.send(one + two + f"GET {PREFIX}/3 HTTP/1.1\r\n{HOST}\r\n")
        assert [seen(client.read_message())[0].split()[1] for _ in range(3)] == ["/1", "/2", "/3"]


def test_a_thousand_pipelined_requests_are_answered(proxy: RunningProxy) -> None:
    with proxy.connect() as client:
        client.send("".join(f"GET {PREFIX}/{n} HTTP/1.1\r\n{HOST}\r\n" for n in range(1000)))
        assert [seen(client.read_message())[0].split()[1] for _ in range(1000)] == [f"/{n}" for n in range(1000)]


def test_keep_alive_reuses_both_connections(proxy: RunningProxy, upstream: ScriptedUpstream) -> None:
    with proxy.connect() as client:
        for _ in range(20):
            client.send(f"GET {PREFIX}/ HTTP/1.1\r\n{HOST}\r\n")
            assert client.read_message().status == 200
    assert upstream.connections == 1


@pytest.mark.parametrize("lines", [1, 2, 10_000])
def test_empty_lines_before_a_request_are_skipped(proxy: RunningProxy, lines: int) -> None:
    assert ask(proxy, "\r\n" * lines + f"GET {PREFIX}/ HTTP/1.1\r\n{HOST}\r\n").status == 200


def test_expect_100_continue_is_the_upstreams_to_answer(proxy: RunningProxy, upstream: ScriptedUpstream) -> None:
    def script(peer: Peer) -> None:
        _, headers = peer.read_head()
        assert values(headers, "Expect") == ["100-continue"]
        peer.send("HTTP/1.1 100 Continue\r\n\r\n")
        assert peer.read_exactly(5) == b"hello"
        peer.send(OK)

    upstream.script = script
    with proxy.connect() as client:
        client.send(f"PUT {PREFIX}/ HTTP/1.1\r\n{HOST}Expect: 100-continue\r\nContent-Length: 5\r\n\r\n")
        assert client.read_until(b"\r\n\r\n").startswith(b"HTTP/1.1 100 ")
        client.send("hello")
        assert client.read_message().body == b"ok"


def test_expect_100_continue_may_be_refused_before_the_body(proxy: RunningProxy, upstream: ScriptedUpstream) -> None:
    upstream.script = answer("HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n")

    def script(peer: Peer) -> None:
        peer.read_head()
        peer.send("HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n")

    upstream.script = script
    with proxy.connect() as client:
        client.send(f"PUT {PREFIX}/ HTTP/1.1\r\n{HOST}Expect: 100-continue\r\nContent-Length: 5000000000\r\n\r\n")
        assert client.read_message().status == 413
        assert client.ended()


def test_http_1_0_is_answered_and_closed(proxy: RunningProxy) -> None:
    with proxy.connect() as client:
        client.send(f"GET {PREFIX}/ HTTP/1.0\r\n{HOST}\r\n")
        response = client.read_message()
        assert seen(response)[0] == "GET / HTTP/1.1"
        assert client.ended()


def test_connection_close_is_kept(proxy: RunningProxy) -> None:
    with proxy.connect() as client:
        client.send(f"GET {PREFIX}/ HTTP/1.1\r\n{HOST}Connection: close\r\n\r\n")
        assert client.read_message().get("Connection") == "close"
        assert client.ended()


def test_a_client_that_half_closes_still_gets_its_answer(proxy: RunningProxy, upstream: ScriptedUpstream) -> None:
    upstream.script = answer(OK)
    with proxy.connect() as client:
        client.send(f"GET {PREFIX}/ HTTP/1.1\r\n{HOST}\r\n")
        client.end_sending()
        assert client.read_message().body == b"ok"
        assert client.ended()


def test_range_and_conditional_requests_are_the_workspaces_own(proxy: RunningProxy) -> None:
    _, headers, _ = seen(
        ask(proxy, f'GET {PREFIX}/ HTTP/1.1\r\n{HOST}Range: bytes=0-9\r\nIf-None-Match: "x"\r\n\r\n')
    )
    assert values(headers, "Range") == ["bytes=0-9"]
    assert values(headers, "If-None-Match") == ['"x"']
