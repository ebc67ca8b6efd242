"""Bodies of any size pass in bounded memory, however slow the reader: a proxy in its own process, seen from outside."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import psutil
import pytest

from testing.codehub.proxy import PREFIX
from testing.codehub.rawhttp import TIMEOUT_S, Peer, ScriptedUpstream, scripted_upstream

SIZE = 256 * 1024 * 1024
PIECE = bytes(1024 * 1024)
# Sockets' buffers are the kernel's; ours are a few hundred kilobytes each way, and the allocator keeps some more.
BOUND = 24 * 1024 * 1024
HOST = "Host: localhost\r\n"


@contextmanager
def proxy_process(upstream: int) -> Iterator[tuple[int, psutil.Process]]:
    command = [sys.executable, "-m", "testing.codehub.proxy", str(upstream)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield int(process.stdout.readline()), psutil.Process(process.pid)
    finally:
        process.communicate(timeout=TIMEOUT_S)  # the end of its input ends it


@pytest.fixture
def upstream() -> Iterator[ScriptedUpstream]:
    with scripted_upstream() as made:
        yield made


def rss(process: psutil.Process) -> int:
    return int(process.memory_info().rss)


def warm_up(port: int) -> None:
    """A first exchange, so that what every process allocates once is there."""
    with Peer(socket.create_connection(("127.0.0.1", port), TIMEOUT_S)) as client:
        client.send(f"GET {PREFIX}/small HTTP/1.1\r\n{HOST}\r\n")
        assert client.read_message().status == 200


def serve(peer: Peer) -> None:
    """Downloads by length and in chunks, and uploads that are counted."""
    while True:
        start, headers = peer.read_head()
        length = int({name.lower(): value for name, value in headers}.get("content-length", "0"))
        took = 0
        while took < length:
            took += len(peer.read_some())
        if "/large" in start:
            peer.send(f"HTTP/1.1 200 OK\r\nContent-Length: {SIZE}\r\n\r\n")
            for _ in range(SIZE // len(PIECE)):
                peer.send(PIECE)
        elif "/chunks" in start:
            peer.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
            for _ in range(SIZE // len(PIECE)):
                peer.send(b"%x\r\n%b\r\n" % (len(PIECE), PIECE))
            peer.send("0\r\n\r\n")
        else:
            peer.send(f"HTTP/1.1 200 OK\r\nX-Took: {took}\r\nContent-Length: 0\r\n\r\n")


@pytest.mark.parametrize("path", ["large", "chunks"])
def test_a_long_download_passes_in_bounded_memory(upstream: ScriptedUpstream, path: str) -> None:
    upstream.script = serve
    with proxy_process(upstream.port) as (port, process):
        warm_up(port)
        before = most = rss(process)
        with Peer(socket.create_connection(("127.0.0.1", port), TIMEOUT_S)) as client:
            client.send(f"GET {PREFIX}/{path} HTTP/1.1\r\n{HOST}Connection: close\r\n\r\n")
            assert client.read_head()[0].endswith("200 OK")
            got = 0
            while piece := client.read_some():
                if got // (8 << 20) != (got + len(piece)) // (8 << 20):
                    most = max(most, rss(process))
                got += len(piece)
        assert got >= SIZE
        assert most - before < BOUND


def test_a_long_upload_passes_in_bounded_memory(upstream: ScriptedUpstream) -> None:
    upstream.script = serve
    with proxy_process(upstream.port) as (port, process):
        warm_up(port)
        before = most = rss(process)
        with Peer(socket.create_connection(("127.0.0.1", port), TIMEOUT_S)) as client:
            client.send(f"PUT {PREFIX}/up HTTP/1.1\r\n{HOST}Content-Length: {SIZE}\r\n\r\n")
            for number in range(SIZE // len(PIECE)):
                client.send(PIECE)
                if number % 8 == 0:
                    most = max(most, rss(process))
            assert client.read_message().get("X-Took") == str(SIZE)
        assert most - before < BOUND


def test_a_reader_that_stops_holds_up_the_upstream_and_not_our_memory(upstream: ScriptedUpstream) -> None:
    upstream.script = serve
    with proxy_process(upstream.port) as (port, process):
        warm_up(port)
        before = rss(process)
        stalled = [Peer(socket.create_connection(("127.0.0.1", port), TIMEOUT_S)) for _ in range(8)]
        for client in stalled:
            client.send(f"GET {PREFIX}/large HTTP/1.1\r\n{HOST}\r\n")
            client.read_until(b"\r\n\r\n")
        # Another one goes through all of its own while these take nothing.
        with Peer(socket.create_connection(("127.0.0.1", port), TIMEOUT_S)) as client:
            client.send(f"GET {PREFIX}/large HTTP/1.1\r\n{HOST}Connection: close\r\n\r\n")
            assert len(client.read_until(b"\r\n\r\n")) > 0
            got = 0
            while piece := client.read_some():
                got += len(piece)
        assert got == SIZE
        assert rss(process) - before < BOUND
        for client in stalled:
            client.close()
