"""Thousands of streams that nobody uses: each is open, costs the proxy little, and is still good afterwards."""

from __future__ import annotations

import os
import socket
from contextlib import ExitStack

import pytest

from testing.codehub.doors import Doors
from testing.codehub.full_stack import TIMEOUT_S
from testing.ports import free_port

pytestmark = pytest.mark.xdist_group("doors")

LISTENER = """
import resource, socket, sys, threading
resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
server = socket.create_server(("127.0.0.1", int(sys.argv[1])), backlog=4096)
poll = __import__("selectors").DefaultSelector()
poll.register(server, 1)
while True:
    for key, _ in poll.select():
        if key.fileobj is server:
            poll.register(server.accept()[0], 1)
            continue
        data = key.fileobj.recv(99)
        if data:
            key.fileobj.sendall(data)
        else:
            poll.unregister(key.fileobj)
            key.fileobj.close()
"""
# A stream may cost the proxy 20 KB; half of the streams are opened first, so that what a proxy needs anyway is not counted.
MOST_BYTES = 20_000


@pytest.mark.parametrize("count", [400, pytest.param(2000, marks=pytest.mark.soak)])
def test_idle_streams_are_cheap_and_stay_open(doors: Doors, count: int) -> None:
    port = free_port()
    server = doors.serve(["python3", "-c", LISTENER, str(port)], port)
    (proxy,) = doors.stack.processes("proxy")
    listening = int(doors.stack.value("CODEHUB_WORKSPACE_BASE_URL").rpartition(":")[2].strip("/"))
    streams: list[socket.socket] = []
    with ExitStack() as stack:
        for _ in range(count // 2):
            streams.append(stack.enter_context(_stream(doors, listening, port)))
        before = proxy.memory_full_info().uss
        for _ in range(count // 2):
            streams.append(stack.enter_context(_stream(doors, listening, port)))
        each = (proxy.memory_full_info().uss - before) / (count // 2)
        assert each <= MOST_BYTES
        for number, stream in enumerate(streams):
            word = os.urandom(4).hex().encode()
            stream.sendall(word)
            assert _exactly(stream, len(word)) == word, number
    doors.kill(server)


def _stream(doors: Doors, listening: int, port: int) -> socket.socket:
    opened = socket.create_connection(("127.0.0.1", listening), timeout=TIMEOUT_S)
    opened.sendall(
        f"GET /_codehub/{doors.workspace_id}/tcp/{port} HTTP/1.1\r\nHost: localhost\r\n"
        f"Authorization: Bearer {doors.token}\r\nConnection: Upgrade\r\nUpgrade: codehub-stream\r\n\r\n".encode()
    )
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        head += _exactly(opened, 1)
    assert head.startswith(b"HTTP/1.1 101"), head
    return opened


def _exactly(stream: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = stream.recv(size - len(data))
        assert part, "the stream was closed"
        data += part
    return data
