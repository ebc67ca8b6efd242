"""Traffic in tiny pieces, which is expensive to read, does not take the proxy's time from others."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from codehub.proxy.connections.pace import PIECES_PER_S, SMALL_READ, SMALL_READS_WAIT_S
from testing.codehub.proxy import PREFIX, RunningProxy
from testing.codehub.rawhttp import TIMEOUT_S, Peer, ScriptedUpstream, answer

HOST = "Host: localhost:8001\r\n"
CHUNK, FRAME = b"1\r\nx\r\n", b"\x82\x00"
PIECES = 100_000
CHARGED_S = 0.5 * PIECES / PIECES_PER_S  # reads with few pieces are free
SWITCH = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
UPGRADE = f"GET {PREFIX}/ HTTP/1.1\r\n{HOST}Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n"


@contextmanager
def sending(peer: Peer, data: bytes) -> Iterator[None]:
    """Send beside what the test reads."""
    thread = threading.Thread(target=peer.send, args=(data,), daemon=True)
    thread.start()
    yield
    thread.join(TIMEOUT_S)
    assert not thread.is_alive()


def budget_end(proxy: RunningProxy) -> float:
    assert proxy.admitter.admission is not None
    return proxy.admitter.admission.target.activity.scan_budget.free_at


def test_an_answer_in_tiny_chunks_arrives_whole_and_is_charged(
    proxy: RunningProxy, upstream: ScriptedUpstream
) -> None:
    upstream.script = answer(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + CHUNK * PIECES + b"0\r\n\r\n")
    begun = proxy.proxy.loop.time()
    with proxy.connect() as client:
        client.send(f"GET {PREFIX}/ HTTP/1.1\r\n{HOST}\r\n")
        client.read_until(b"\r\n\r\n")
        assert client.read_exactly(len(CHUNK) * PIECES) == CHUNK * PIECES
        assert client.read_exactly(5) == b"0\r\n\r\n"
    assert budget_end(proxy) - begun > CHARGED_S


def test_a_request_in_tiny_chunks_arrives_whole_and_is_charged(proxy: RunningProxy) -> None:
    begun = proxy.proxy.loop.time()
    head = f"POST {PREFIX}/ HTTP/1.1\r\n{HOST}Transfer-Encoding: chunked\r\n\r\n".encode()
    with proxy.connect() as client, sending(client, head + CHUNK * PIECES + b"0\r\n\r\n"):
        assert client.read_message().body.endswith(CHUNK * PIECES + b"0\r\n\r\n")
    assert budget_end(proxy) - begun > CHARGED_S


@pytest.mark.parametrize("sender", ["workspace", "browser"])
def test_tiny_frames_arrive_whole_and_are_charged(
    proxy: RunningProxy, upstream: ScriptedUpstream, sender: str
) -> None:
    received = threading.Event()

    def script(peer: Peer) -> None:
        peer.read_head()
        peer.send(SWITCH)
        if sender == "workspace":
            peer.send(FRAME * PIECES)
        else:
            assert peer.read_exactly(len(FRAME) * PIECES) == FRAME * PIECES
        received.set()

    upstream.script = script
    begun = proxy.proxy.loop.time()
    with proxy.connect() as client:
        client.send(UPGRADE)
        assert client.read_head()[0].startswith("HTTP/1.1 101")
        if sender == "workspace":
            assert client.read_exactly(len(FRAME) * PIECES) == FRAME * PIECES
        else:
            client.send(FRAME * PIECES)
        assert received.wait(TIMEOUT_S)
    assert budget_end(proxy) - begun > CHARGED_S


def test_while_the_budget_is_used_up_large_data_waits_and_small_data_does_not(
    proxy: RunningProxy, upstream: ScriptedUpstream
) -> None:
    large, small = b"\x82\x7e\xff\xff" + b"x" * 65_535, b"\x82\x01k"

    def script(peer: Peer) -> None:
        peer.read_head()
        peer.send(SWITCH)
        peer.send(peer.read_exactly(1) + small)
        peer.read_exactly(1)
        peer.send(large)
        peer.read_some()

    upstream.script = script
    with proxy.connect() as client:
        client.send(UPGRADE)
        client.read_head()
        client.send(b"1")
        client.read_exactly(1 + len(small))
        assert proxy.admitter.admission is not None
        budget = proxy.admitter.admission.target.activity.scan_budget
        budget.free_at = until = proxy.proxy.loop.time() + 1.0
        client.send(b"2")
        assert client.read_exactly(len(large)) == large
        assert proxy.proxy.loop.time() >= until


def test_small_reads_wait_too_behind_a_long_debt(proxy: RunningProxy, upstream: ScriptedUpstream) -> None:
    """Sent one by one, reads of a kilobyte hold as many frames as a large one: 512 of them, and none waited."""
    frames = FRAME * (SMALL_READ // len(FRAME))
    arrived = threading.Event()

    def script(peer: Peer) -> None:
        peer.read_head()
        peer.send(SWITCH)
        peer.read_exactly(len(frames))
        arrived.set()

    upstream.script = script
    with proxy.connect() as client:
        client.send(UPGRADE)
        client.read_head()
        assert proxy.admitter.admission is not None
        budget = proxy.admitter.admission.target.activity.scan_budget
        budget.free_at = until = proxy.proxy.loop.time() + SMALL_READS_WAIT_S + 1.0
        client.send(frames)
        assert arrived.wait(TIMEOUT_S)
        assert proxy.proxy.loop.time() >= until
