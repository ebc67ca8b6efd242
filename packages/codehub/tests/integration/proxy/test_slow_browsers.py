"""A browser that asks for much and reads little holds up neither the proxy's memory nor connections that others use."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager

from codehub.proxy.connections.upstream import WRITE_HIGH
from testing.codehub.proxy import PREFIX, RunningProxy
from testing.codehub.rawhttp import TIMEOUT_S, Peer, ScriptedUpstream

GET = f"GET {PREFIX}/ HTTP/1.1\r\nHost: localhost:8001\r\n\r\n"
# Small enough to arrive in one piece, so that the write that fills the browser's buffer ends its response.
BODY = b"x" * 16_384
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(BODY) + BODY
REQUESTS = 2_000


def unread(proxy: RunningProxy) -> int:
    """Return how many bytes the proxy keeps for browsers."""
    return sum(connection.transport.get_write_buffer_size() for connection in list(proxy.proxy.connections))


@contextmanager
def asking_without_reading(proxy: RunningProxy, upstream: ScriptedUpstream) -> Iterator[tuple[Peer, int]]:
    """Pipeline requests until the proxy answers no more of them. Yields the most that it kept meanwhile too."""
    answered, most = [0], 0

    def script(peer: Peer) -> None:
        while True:
            peer.read_head()
            peer.send(ANSWER)
            answered[0] += 1

    upstream.script = script
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.connect(("127.0.0.1", proxy.port))
    with Peer(connection) as client:
        client.send(GET * REQUESTS)
        deadline = time.monotonic() + TIMEOUT_S
        while answered[0] < REQUESTS:
            most = max(most, unread(proxy))
            if most > WRITE_HIGH and not any(each.transport.is_reading() for each in list(proxy.proxy.connections)):
                break
            assert time.monotonic() < deadline, (answered, most)
            time.sleep(0.01)
        yield client, max(most, unread(proxy))


def test_pipelined_requests_wait_until_their_answers_are_read(
    proxy: RunningProxy, upstream: ScriptedUpstream
) -> None:
    with asking_without_reading(proxy, upstream) as (client, most):
        assert most < WRITE_HIGH + 4 * len(BODY)
        for _ in range(REQUESTS):
            assert client.read_message().body == BODY


def test_a_slow_browser_does_not_pause_a_connection_that_another_one_uses(
    proxy: RunningProxy, upstream: ScriptedUpstream
) -> None:
    with asking_without_reading(proxy, upstream), proxy.connect() as other:
        before = upstream.connections
        other.send(GET)
        assert other.read_message().body == BODY
        assert upstream.connections == before, "it uses the connection that the slow one used"
