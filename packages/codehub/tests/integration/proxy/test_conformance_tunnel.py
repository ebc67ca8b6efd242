"""Upgrades: bytes both ways, half-closes kept, frames left alone."""

from __future__ import annotations

import socket
import threading

import pytest

from codehub.domain.profiles import JUPYTERLAB
from testing.codehub.proxy import PREFIX, RunningProxy, wired
from testing.codehub.rawhttp import Peer, ScriptedUpstream, answer

UPGRADE = (
    f"GET {PREFIX}/socket HTTP/1.1\r\nHost: localhost:8001\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n"
    "Sec-WebSocket-Key: a\r\nSec-WebSocket-Protocol: v1.x, v2.y\r\nSec-WebSocket-Extensions: permessage-deflate\r\n\r\n"
)
SWITCH = (
    "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: b\r\n"
    "Sec-WebSocket-Protocol: v2.y\r\nSec-WebSocket-Extensions: permessage-deflate\r\n\r\n"
)


def frame(payload: bytes, *, opcode: int = 2, masked: bool = False) -> bytes:
    size = len(payload)
    if size < 126:
        length = bytes([size])
    else:
        length = b"\x7e" + size.to_bytes(2, "big") if size < 65_536 else b"\x7f" + size.to_bytes(8, "big")
    head = bytes([0x80 | opcode])
    if not masked:
        return head + length + payload
    key = b"\x01\x02\x03\x04"
    return head + bytes([length[0] | 0x80]) + length[1:] + key + bytes(b ^ key[i % 4] for i, b in enumerate(payload))


def mirror(peer: Peer) -> None:
    """Switches, then sends back what comes, until the other side ends; then one more word, and the end."""
    peer.read_head()
    peer.send(SWITCH)
    while data := peer.read_some():
        peer.send(data)
    peer.send("bye")


def opened(proxy: RunningProxy, raw: str = UPGRADE) -> Peer:
    client = proxy.connect()
    client.send(raw)
    assert client.read_until(b"\r\n\r\n").startswith(b"HTTP/1.1 101 ")
    return client


def test_an_upgrade_passes_its_subprotocol_and_extension_both_ways(
    proxy: RunningProxy, upstream: ScriptedUpstream
) -> None:
    received: list[tuple[str, str]] = []

    def script(peer: Peer) -> None:
        received.extend(peer.read_head()[1])
        peer.send(SWITCH)

    upstream.script = script
    with proxy.connect() as client:
        client.send(UPGRADE)
        _, headers = client.read_head()
        got = {name.lower(): value for name, value in headers}
        assert got["upgrade"].lower() == "websocket"
        assert got["connection"].lower() == "upgrade"
        assert got["sec-websocket-protocol"] == "v2.y"
        assert got["sec-websocket-extensions"] == "permessage-deflate"
    sent = {name.lower(): value for name, value in received}
    assert sent["upgrade"] == "websocket"
    assert sent["connection"].lower() == "upgrade"
    assert sent["sec-websocket-protocol"] == "v1.x, v2.y"
    assert sent["sec-websocket-extensions"] == "permessage-deflate"


@pytest.mark.parametrize("background", [(), ("ws:vscode-keepalive",)])
def test_a_tunnel_carries_bytes_of_any_kind_unchanged(background: tuple[str, ...]) -> None:
    with wired(background=background) as (proxy, upstream):
        upstream.script = mirror
        with opened(proxy) as client:
            for payload in (b"", b"x", b"y" * 125, b"z" * 126, b"w" * 65_536, bytes(range(256)) * 4000):
                raw = frame(payload, masked=True)
                client.send(raw)
                assert client.read_exactly(len(raw)) == raw
            nonsense = bytes(range(255, -1, -1)) * 100
            client.send(nonsense)
            assert client.read_exactly(len(nonsense)) == nonsense


def test_what_is_sent_before_the_switch_arrives_after_it(proxy: RunningProxy, upstream: ScriptedUpstream) -> None:
    upstream.script = mirror
    with proxy.connect() as client:
        client.send(UPGRADE + "early")
        client.read_until(b"\r\n\r\n")
        assert client.read_exactly(5) == b"early"


def test_what_comes_with_the_switch_arrives_too(proxy: RunningProxy, upstream: ScriptedUpstream) -> None:
    upstream.script = answer(SWITCH + "hello")
    with opened(proxy) as client:
        assert client.read_to_end() == b"hello"


def test_a_half_close_is_passed_on_and_the_other_half_goes_on(
    proxy: RunningProxy, upstream: ScriptedUpstream
) -> None:
    upstream.script = mirror
    with opened(proxy) as client:
        client.send("abc")
        assert client.read_exactly(3) == b"abc"
        client.end_sending()
        assert client.read_to_end() == b"bye"


def test_a_tunnel_ends_when_its_upstream_is_cut(proxy: RunningProxy, upstream: ScriptedUpstream) -> None:
    def script(peer: Peer) -> None:
        peer.read_head()
        peer.send(SWITCH)
        peer.read_exactly(1)
        peer.reset()

    upstream.script = script
    with opened(proxy) as client:
        client.send("x")
        assert client.ended()


def test_silence_does_not_end_a_tunnel(proxy: RunningProxy, upstream: ScriptedUpstream) -> None:
    upstream.script = mirror
    with opened(proxy) as client:
        proxy.skip(100_000)
        client.send("still here")
        assert client.read_exactly(10) == b"still here"


def test_a_line_that_died_without_a_word_is_asked_for_by_the_kernel(
    proxy: RunningProxy, upstream: ScriptedUpstream
) -> None:
    """An idle WebSocket of a laptop that lost its network stayed for ever."""
    upstream.script = mirror
    with opened(proxy):
        (tunnel,) = proxy.proxy.tunnels
        for side in (tunnel.client, tunnel.server):
            sock = side.transport.get_extra_info("socket")
            assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 60


def test_a_tunnel_of_which_one_half_has_ended_does_not_stay_for_ever(
    proxy: RunningProxy, upstream: ScriptedUpstream
) -> None:
    half_closed, over = threading.Event(), threading.Event()

    def script(peer: Peer) -> None:
        peer.read_head()
        peer.send(SWITCH)
        peer.read_to_end()
        half_closed.set()
        over.wait(60)  # and says nothing more itself

    upstream.script = script
    with opened(proxy) as client:
        client.end_sending()
        assert half_closed.wait(60)
        proxy.skip(100)
        assert client.ended()
        over.set()


def test_a_refused_upgrade_is_an_ordinary_answer(proxy: RunningProxy, upstream: ScriptedUpstream) -> None:
    upstream.script = answer("HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno")
    with proxy.connect() as client:
        client.send(UPGRADE)
        response = client.read_message()
        assert (response.status, response.body) == (403, b"no")


def test_another_protocol_than_websocket_is_a_tunnel_too(proxy: RunningProxy, upstream: ScriptedUpstream) -> None:
    def script(peer: Peer) -> None:
        peer.read_head()
        peer.send("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: chat\r\n\r\n")
        peer.send(peer.read_exactly(4))

    upstream.script = script
    with opened(proxy, UPGRADE.replace("websocket\r\n", "chat\r\n", 1)) as client:
        client.send("ping")
        assert client.read_to_end() == b"ping"


def test_http_2_is_never_a_tunnel(proxy: RunningProxy) -> None:
    with proxy.connect() as client:
        raw = f"GET {PREFIX}/ HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade, HTTP2-Settings\r\n"
        client.send(raw + "Upgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n\r\n")
        response = client.read_message()
        assert response.status == 200
        assert b"h2c" not in response.body
        assert b"HTTP2-Settings" not in response.body


def test_a_thousand_small_frames_pass_in_order(proxy: RunningProxy, upstream: ScriptedUpstream) -> None:
    upstream.script = mirror
    raw = b"".join(frame(str(n).encode(), masked=True) for n in range(1000))
    with opened(proxy) as client:
        client.send(raw)
        assert client.read_exactly(len(raw)) == raw


def test_a_shutdown_tells_a_websocket_1001_between_two_frames(
    proxy: RunningProxy, upstream: ScriptedUpstream
) -> None:
    upstream.script = mirror
    with opened(proxy) as client:
        raw = frame(b"word")
        client.send(raw)
        assert client.read_exactly(len(raw)) == raw
        proxy.stop()
        assert client.read_to_end() == b"\x88\x02\x03\xe9"


def test_a_shutdown_tells_a_websocket_what_its_profile_says_instead(
    proxy: RunningProxy, upstream: ScriptedUpstream
) -> None:
    """JupyterLab takes 1001 for good: its terminals and kernels connected never again after a restart of the proxy."""
    upstream.script = mirror
    with opened(proxy) as client:
        assert proxy.admitter.admission is not None
        proxy.admitter.admission.target.close_code = JUPYTERLAB.close_code
        proxy.stop()
        assert client.read_to_end() == b"\x88\x02\x03\xf4"
