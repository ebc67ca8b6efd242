"""Large transfers over a stream that is not a WebSocket: they move inside the kernel, and nothing else is different."""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from testing.codehub.proxy import PREFIX, WORKSPACE, RunningProxy
from testing.codehub.rawhttp import Peer, ScriptedUpstream

UPGRADE = (
    f"GET {PREFIX}/stream HTTP/1.1\r\nHost: localhost:8001\r\nConnection: Upgrade\r\nUpgrade: codehub-stream\r\n\r\n"
)
SWITCH = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: codehub-stream\r\n\r\n"
LARGE = random.Random(7).randbytes(24 << 20)


def opened(proxy: RunningProxy) -> Peer:
    client = proxy.connect()
    client.send(UPGRADE)
    assert client.read_until(b"\r\n\r\n").startswith(b"HTTP/1.1 101 ")
    return client


def switched(peer: Peer) -> None:
    peer.read_head()
    peer.send(SWITCH)


def send_all(peer: Peer, data: bytes) -> None:
    peer.send(data)
    peer.end_sending()


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_large_transfer_arrives_whole_in_both_directions_at_once(
    proxy: RunningProxy, upstream: ScriptedUpstream
) -> None:
    arrived: list[bytes] = []

    def script(peer: Peer) -> None:
        switched(peer)
        sending = threading.Thread(target=send_all, args=(peer, LARGE[::-1]))
        sending.start()
        arrived.append(peer.read_to_end())
        sending.join()

    upstream.script = script
    with opened(proxy) as client:
        sending = threading.Thread(target=send_all, args=(client, LARGE))
        sending.start()
        assert client.read_to_end() == LARGE[::-1]
        sending.join()
    upstream.wait()
    assert arrived == [LARGE]
    assert len(proxy.proxy.pipes) > 0, "it went through pipes"


def test_small_and_large_pieces_keep_their_order(proxy: RunningProxy, upstream: ScriptedUpstream) -> None:
    def script(peer: Peer) -> None:
        switched(peer)
        while data := peer.read_some():
            peer.send(data)

    upstream.script = script
    chance = random.Random(11)
    with opened(proxy) as client:
        for _ in range(40):
            start, size = chance.randrange(1 << 20), chance.choice((1, 100, 40_000, 300_000, 900_000))
            piece = LARGE[start : start + size]
            sending = threading.Thread(target=client.send, args=(piece,))
            sending.start()
            assert client.read_exactly(size) == piece
            sending.join()


def test_a_slow_reader_holds_up_its_sender_and_loses_nothing(proxy: RunningProxy, upstream: ScriptedUpstream) -> None:
    """The proxy keeps a pipe's worth of a stalled transfer, not all of it."""
    sent_all, may_read = threading.Event(), threading.Event()
    arrived: list[bytes] = []
    much = LARGE * 4  # more than all buffers of the kernel on the way

    def script(peer: Peer) -> None:
        switched(peer)
        may_read.wait(60)
        arrived.append(peer.read_to_end())

    def send() -> None:
        client.send(much)
        sent_all.set()
        client.end_sending()

    upstream.script = script
    with opened(proxy) as client:
        sending = threading.Thread(target=send)
        sending.start()
        assert not sent_all.wait(1)
        may_read.set()
        sending.join(60)
        assert client.ended()
    upstream.wait()
    assert arrived == [much]


def test_a_transfer_that_is_cut_ends_the_other_side_and_leaves_no_descriptor(
    proxy: RunningProxy, upstream: ScriptedUpstream
) -> None:
    over = threading.Event()

    def script(peer: Peer) -> None:
        switched(peer)
        peer.read_exactly(4 << 20)
        peer.reset()
        over.set()

    upstream.script = script
    before = open_files()
    for _ in range(5):
        with opened(proxy) as client:
            with suppress(OSError):
                client.send(LARGE)
            assert over.wait(60)
            over.clear()
            with suppress(ConnectionResetError):
                assert client.ended()
    until(lambda: not proxy.proxy.tunnels)
    # What stays: empty pipes for the next transfers.
    assert open_files() <= before + 2 * 8


def test_a_transfer_counts_as_activity(proxy: RunningProxy, upstream: ScriptedUpstream) -> None:
    def script(peer: Peer) -> None:
        switched(peer)
        peer.read_to_end()

    upstream.script = script
    with opened(proxy) as client:
        client.send(LARGE)
        touched = proxy.activity.pending[WORKSPACE]
        proxy.skip(30)

        def touched_again() -> bool:
            client.send(LARGE[: 1 << 20])
            return proxy.activity.pending[WORKSPACE] > touched

        until(touched_again)


def test_a_shutdown_ends_a_transfer_that_is_under_way(proxy: RunningProxy, upstream: ScriptedUpstream) -> None:
    def script(peer: Peer) -> None:
        switched(peer)
        peer.read_exactly(1 << 20)
        threading.Event().wait(1)
        peer.read_to_end()

    upstream.script = script
    with opened(proxy) as client:
        sending = threading.Thread(target=_send_until_cut, args=(client,))
        sending.start()
        proxy.stop()
        sending.join(60)
        assert not sending.is_alive()


def _send_until_cut(client: Peer) -> None:
    with suppress(OSError):
        while True:
            client.send(LARGE)
