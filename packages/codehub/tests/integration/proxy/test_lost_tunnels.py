"""A WebSocket that is lost while the proxy shuts down does not disturb the others."""

from __future__ import annotations

from concurrent.futures import Future

import pytest

from testing.codehub.proxy import PREFIX, RunningProxy
from testing.codehub.rawhttp import TIMEOUT_S, Peer, ScriptedUpstream

UPGRADE = f"GET {PREFIX}/ HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
SWITCH = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"


def mirror(peer: Peer) -> None:
    peer.read_head()
    peer.send(SWITCH)
    peer.read_to_end()


@pytest.mark.parametrize("lost", ["client", "server"])
def test_a_tunnel_that_lost_one_side_a_moment_ago_can_be_closed(
    proxy: RunningProxy, upstream: ScriptedUpstream, lost: str
) -> None:
    upstream.script = mirror
    with proxy.connect() as client:
        client.send(UPGRADE)
        client.read_until(b"\r\n\r\n")
        (tunnel,) = proxy.proxy.tunnels
        loop = proxy.proxy.loop
        closed: Future[tuple[bool, bool]] = Future()

        def close() -> None:
            try:
                closed.set_result((tunnel.client.gone != tunnel.server.gone, tunnel.go_away()))
            except Exception as error:
                closed.set_exception(error)

        def lose() -> None:
            getattr(tunnel, lost).transport.abort()
            # Behind the notice that this side is lost, and before that of the other.
            loop.call_soon(close)

        loop.call_soon_threadsafe(lose)
        assert closed.result(TIMEOUT_S) == (True, True)
