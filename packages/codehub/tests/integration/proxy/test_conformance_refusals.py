"""What two parsers could read in two ways is refused before a byte of it reaches the workspace."""

from __future__ import annotations

import contextlib
import select
import socket
import threading
import time
from collections.abc import Callable

import pytest

from codehub.domain.connection_cap import ConnectionCap
from testing.codehub.proxy import PREFIX, RunningProxy, wired
from testing.codehub.rawhttp import Peer, ScriptedUpstream

HOST = "Host: localhost\r\n"
POST = f"POST {PREFIX}/ HTTP/1.1\r\n{HOST}"
GET = f"GET {PREFIX}/ HTTP/1.1\r\n{HOST}"
CHUNKED = f"{POST}Transfer-Encoding: chunked\r\n\r\n"

HEADS: dict[str, tuple[str, int]] = {
    "two lengths": (f"{POST}Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd", 400),
    "two equal lengths": (f"{POST}Content-Length: 3\r\nContent-Length: 3\r\n\r\nabc", 400),
    "a list of lengths": (f"{POST}Content-Length: 3, 3\r\n\r\nabc", 400),
    "a negative length": (f"{POST}Content-Length: -1\r\n\r\n", 400),
    "a signed length": (f"{POST}Content-Length: +3\r\n\r\nabc", 400),
    "a hexadecimal length": (f"{POST}Content-Length: 0x3\r\n\r\nabc", 400),
    "an empty length": (f"{POST}Content-Length:\r\n\r\n", 400),
    "an endless length": (f"{POST}Content-Length: {'9' * 40}\r\n\r\n", 400),
    "length and chunked": (f"{POST}Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
    "chunked twice": (f"{POST}Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
    "chunked and something": (f"{POST}Transfer-Encoding: gzip, chunked\r\n\r\n", 501),
    "chunked misspelled": (f"{POST}Transfer-Encoding: xchunked\r\n\r\n", 501),
    "chunked with a vertical tab": (f"{POST}Transfer-Encoding: \x0bchunked\r\n\r\n", 400),
    "chunked in HTTP/1.0": (f"POST {PREFIX}/ HTTP/1.0\r\n{HOST}Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
    "a space before the colon": (f"{POST}Transfer-Encoding : chunked\r\n\r\n", 400),
    "a folded line": (f"{GET}X-A: 1\r\n folded\r\n\r\n", 400),
    "a folded first line": (f"GET {PREFIX}/ HTTP/1.1\r\n X: 1\r\n{HOST}\r\n", 400),
    "a bare LF between headers": (f"{GET}X-A: 1\nX-B: 2\r\n\r\n", 400),
    "a bare LF in the request line": (f"GET {PREFIX}/ HTTP/1.1\n{HOST}\r\n", 400),
    "a bare CR in a value": (f"{GET}X-A: 1\rX-B: 2\r\n\r\n", 400),
    "a NUL in a value": (f"{GET}X-A: \x00\r\n\r\n", 400),
    "a name that is no token": (f"{GET}X(A): 1\r\n\r\n", 400),
    "an empty name": (f"{GET}: 1\r\n\r\n", 400),
    "a line without a colon": (f"{GET}nonsense\r\n\r\n", 400),
    "a known name without a colon": (f"{GET}Cookie\r\n\r\n", 400),
    "no Host": (f"GET {PREFIX}/ HTTP/1.1\r\n\r\n", 400),
    "two Hosts": (f"{GET}Host: other\r\n\r\n", 400),
    "a Host that is a path": (f"GET {PREFIX}/ HTTP/1.1\r\nHost: a/b\r\n\r\n", 400),
    "another host in the target": (f"GET http://other{PREFIX}/ HTTP/1.1\r\n{HOST}\r\n", 400),
    "an authority as target": (f"CONNECT localhost:22 HTTP/1.1\r\n{HOST}\r\n", 400),
    "four words": (f"GET {PREFIX}/ x HTTP/1.1\r\n{HOST}\r\n", 400),
    "a tab in the target": (f"GET {PREFIX}/a\tb HTTP/1.1\r\n{HOST}\r\n", 400),
    "two spaces": (f"GET  {PREFIX}/ HTTP/1.1\r\n{HOST}\r\n", 400),
    "HTTP/0.9": (f"GET {PREFIX}/\r\n\r\n", 400),
    "HTTP/2": ("PRI * HTTP/2.0\r\n\r\n", 505),
    "a method that is no token": (f"G@T {PREFIX}/ HTTP/1.1\r\n{HOST}\r\n", 400),
    "an unknown expectation": (f"{GET}Expect: a-miracle\r\n\r\n", 417),
    "two Origins": (f"{GET}Origin: a\r\nOrigin: b\r\n\r\n", 400),
    "two Authorizations": (f"{GET}Authorization: a\r\nAuthorization: b\r\n\r\n", 400),
    "an upgrade with a body": (
        f"{GET}Connection: upgrade\r\nUpgrade: websocket\r\nContent-Length: 2\r\n\r\nhi",
        400,
    ),
    "a large head": (f"{GET}X: {'y' * 70_000}\r\n\r\n", 431),
    "a large head without an end": (f"{GET}X: {'y' * 70_000}", 431),
    "many headers": (GET + "A: b\r\n" * 300 + "\r\n", 431),
}

BODIES: dict[str, str] = {
    "a size that is no number": "zz\r\nhello\r\n0\r\n\r\n",
    "a size with a sign": "+5\r\nhello\r\n0\r\n\r\n",
    "a size with 0x": "0x5\r\nhello\r\n0\r\n\r\n",
    "a size with a space": "5 \r\nhello\r\n0\r\n\r\n",
    "an empty size": "\r\nhello\r\n0\r\n\r\n",
    "a size with a bare LF": "5\nhello\r\n0\r\n\r\n",
    "a size that overflows": "ffffffffffffffffff\r\nhello\r\n",
    "a chunk longer than its size": "3\r\nhello\r\n0\r\n\r\n",
    "a chunk ended by LF": "5\r\nhello\n0\r\n\r\n",
    "an extension with a bare CR": "5;a=\rb\r\nhello\r\n0\r\n\r\n",
    "an endless size line": "5;" + "a" * 6000,
    "a trailer that is a length": "0\r\nContent-Length: 5\r\n\r\n",
    "a trailer that frames": "0\r\nTransfer-Encoding: chunked\r\n\r\n",
    "a trailer that signs in": "0\r\nCookie: codehub_ws=x\r\n\r\n",
    "a trailer with a bare LF": "0\r\nX: y\n\r\n",
    "a folded trailer": "0\r\nX: y\r\n z\r\n\r\n",
    "endless trailers": "0\r\n" + "X: yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy\r\n" * 600,
}


@pytest.mark.parametrize("case", HEADS)
def test_a_malformed_head_never_reaches_the_workspace(
    proxy: RunningProxy, upstream: ScriptedUpstream, case: str
) -> None:
    raw, status = HEADS[case]
    smuggled = f"GET {PREFIX}/smuggled HTTP/1.1\r\n{HOST}\r\n"
    with proxy.connect() as client:
        client.send(raw.encode("latin-1") + smuggled.encode())
        response = client.read_message()
        assert response.status == status
        assert response.get("Connection") == "close"
        assert client.ended()
    assert upstream.connections == 0


@pytest.mark.parametrize("case", BODIES)
def test_a_malformed_chunk_is_refused_and_the_upstream_cut_off(
    proxy: RunningProxy, upstream: ScriptedUpstream, case: str
) -> None:
    received: list[bytes] = []
    cut_off = threading.Event()

    def collect(peer: Peer) -> None:
        with contextlib.suppress(OSError, EOFError):
            peer.read_head()
            while data := peer.read_some():
                received.append(data)
        cut_off.set()

    upstream.script = collect
    with proxy.connect() as client:
        client.send(CHUNKED)
        upstream_has_it(upstream)
        client.send(BODIES[case])
        response = client.read_message()
        assert response.status in (400, 431)
        assert client.ended()
    assert cut_off.wait(60)
    assert not b"".join(received).endswith(b"\r\n\r\n"), "a body that the workspace takes for whole"


def test_a_body_that_ends_early_is_not_taken_for_whole(proxy: RunningProxy, upstream: ScriptedUpstream) -> None:
    with proxy.connect() as client:
        client.send(f"{POST}Content-Length: 10\r\n\r\nhello")
        client.end_sending()
        assert client.ended()


def test_a_head_that_trickles_is_cut_off(proxy: RunningProxy) -> None:
    with proxy.connect() as client:
        client.send(GET)
        client.send("X-Slow: ")
        # The proxy has read this much once it counts the connection; then its clock runs ahead.
        wait_for_head(proxy)
        proxy.skip(60)
        assert client.read_message().status == 408
        assert client.ended()


def test_a_later_head_that_trickles_is_cut_off_before_an_idle_connection_would_be(proxy: RunningProxy) -> None:
    with proxy.connect() as client:
        client.send(f"{GET}\r\n")
        assert client.read_message().status == 200
        client.send(GET)
        wait_for_head(proxy)
        proxy.skip(20)
        client.sock.settimeout(40)  # an idle connection would last for 55 s more
        assert client.read_message().status == 408
        assert client.ended()


def test_an_idle_connection_is_closed_in_the_end(proxy: RunningProxy) -> None:
    with proxy.connect() as client:
        client.send(f"{GET}\r\n")
        assert client.read_message().status == 200
        proxy.skip(100)
        assert client.ended()


def test_a_body_that_stops_is_cut_off(proxy: RunningProxy, upstream: ScriptedUpstream) -> None:
    with proxy.connect() as client:
        client.send(f"{POST}Content-Length: 10\r\n\r\nhello")
        upstream_has_it(upstream)
        proxy.skip(100)
        assert client.read_message().status == 408
        assert client.ended()


def test_a_body_that_trickles_is_cut_off(proxy: RunningProxy, upstream: ScriptedUpstream) -> None:
    """One byte every 20 seconds would keep a connection for ever."""
    with proxy.connect() as client:
        client.send(f"{POST}Content-Length: 1000\r\n\r\nhello")
        upstream_has_it(upstream)
        for _ in range(10):
            client.send("x")
            wait_for_head(proxy)  # so the byte was read
            skip(proxy, 20)
            wait_for_head(proxy)
            if select.select([client.sock], [], [], 0)[0]:
                break
        assert client.read_message().status == 408
        assert client.ended()


def test_a_body_that_comes_fast_enough_is_not_cut_off(proxy: RunningProxy, upstream: ScriptedUpstream) -> None:
    pieces, size = 5, 10_000
    came = threading.Semaphore(0)

    def reads(peer: Peer) -> None:
        peer.read_head()
        for _ in range(pieces):
            peer.read_exactly(size)
            came.release()
        peer.send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")

    upstream.script = reads
    with proxy.connect() as client:
        client.send(f"{POST}Content-Length: {pieces * size}\r\n\r\n")
        for _ in range(pieces):
            client.send(b"x" * size)
            assert came.acquire(timeout=60)
            skip(proxy, 40)
        assert client.read_message().status == 200


def test_two_hundred_slow_clients_do_not_keep_others_out(proxy: RunningProxy) -> None:
    slow = [proxy.connect() for _ in range(200)]
    for client in slow:
        client.send("GET / HT")
    with proxy.connect() as client:
        client.send(f"{GET}\r\n")
        assert client.read_message().status == 200
    for client in slow:
        client.close()


def test_an_address_with_too_many_connections_gets_no_more_and_others_do() -> None:
    with wired() as (proxy, _):
        proxy.proxy._cap = ConnectionCap(20)
        many = [proxy.connect() for _ in range(20)]
        wait_until(lambda: len(proxy.proxy.connections) == 20)
        with proxy.connect() as refused:
            assert refused.ended()
        other = socket.create_connection(("127.0.0.1", proxy.port), 60, source_address=("127.0.0.2", 0))
        with Peer(other) as client:
            client.send(f"{GET}\r\n")
            assert client.read_message().status == 200
        for client in many:
            client.close()
        wait_until(lambda: not proxy.proxy.connections)
        with proxy.connect() as client:
            client.send(f"{GET}\r\n")
            assert client.read_message().status == 200


def test_upgraded_connections_count_until_they_end() -> None:
    """They take two files each, and a user could open as many as the proxy may have."""
    upgrade = f"{GET}Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n"

    def script(peer: Peer) -> None:
        peer.read_head()
        peer.send("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
        peer.ended()

    with wired() as (proxy, upstream):
        upstream.script = script
        proxy.proxy._cap = ConnectionCap(3)
        for _ in range(2):
            many = [proxy.connect() for _ in range(3)]
            for client in many:
                client.send(upgrade)
                assert client.read_head()[0].startswith("HTTP/1.1 101 ")
            assert not proxy.proxy._cap.admit("127.0.0.1")
            for client in many:
                client.close()
            wait_until(lambda: not proxy.proxy.tunnels)


def skip(proxy: RunningProxy, seconds: float) -> None:
    """Move the proxy's clock, and wait until the proxy sees it."""
    before = proxy.proxy.clock.now
    proxy.skip(seconds)
    wait_until(lambda: proxy.proxy.clock.now >= before + seconds)


def wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def wait_for_head(proxy: RunningProxy) -> None:
    """Until another connection was answered: what was sent before on other connections has been read by then."""
    for _ in range(2):
        with proxy.connect() as client:
            client.send(f"{GET}\r\n")
            assert client.read_message().status == 200


def upstream_has_it(upstream: ScriptedUpstream) -> None:
    import time

    deadline = time.monotonic() + 60
    while not upstream.connections:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_connection_that_says_nothing_is_closed(proxy: RunningProxy) -> None:
    with proxy.connect() as client:
        wait_for_head(proxy)
        proxy.skip(60)
        client.sock.settimeout(60)
        assert client.sock.recv(1, socket.MSG_PEEK) == b""


def test_a_client_that_takes_nothing_is_cut_off(proxy: RunningProxy, upstream: ScriptedUpstream) -> None:
    """Its answer waits for it for two minutes, and not for ever."""
    stopped = threading.Event()

    def endless(peer: Peer) -> None:
        peer.read_head()
        peer.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        try:
            while True:
                peer.send(b"10000\r\n" + bytes(65_536) + b"\r\n")
        except OSError:
            stopped.set()

    upstream.script = endless
    with proxy.connect() as client:
        client.send(f"{GET}\r\n")
        client.read_until(b"\r\n\r\n")
        # However long it takes until all buffers on the way are full.
        for _ in range(1200):
            if stopped.wait(0.05):
                return
            proxy.skip(60)
        raise AssertionError("it is still being waited for")
