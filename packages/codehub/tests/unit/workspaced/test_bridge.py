"""The bridge between a Unix socket and an IDE that listens only on a port, as its supervisor runs it."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from codehub.adapters.workspaced_launch import FOLDER
from testing.ports import free_port

# Far more than the buffers of the sockets hold, so that both directions have to wait.
LARGE = os.urandom(1 << 20) * 8
DEADLINE_S = 60.0


@pytest.fixture
def port() -> int:
    return free_port()


@pytest.fixture
def bridge(tmp_path: Path, port: int) -> Iterator[Path]:
    """The socket of a bridge to the port."""
    path = tmp_path / "ide.sock"
    program = [sys.executable, "-I", "-S", "-B", str(FOLDER / "__main__.py")]
    command = [*program, "--supervise-bridge", str(path), str(port)]
    with subprocess.Popen(command) as process:
        try:
            yield path
        finally:
            process.terminate()


def connected(path: Path) -> socket.socket:
    """A connection to the bridge, which may still be starting."""
    deadline = time.monotonic() + DEADLINE_S
    while True:
        client = socket.socket(socket.AF_UNIX)
        client.settimeout(DEADLINE_S)
        try:
            client.connect(str(path))
            return client
        except OSError:
            client.close()
            assert time.monotonic() < deadline
            time.sleep(0.01)


def ide(port: int, address: str = "127.0.0.1") -> socket.socket:
    listener = socket.create_server((address, port), family=socket.AF_INET6 if ":" in address else socket.AF_INET)
    listener.settimeout(DEADLINE_S)
    return listener


def accepted(listener: socket.socket) -> socket.socket:
    server, _ = listener.accept()
    server.settimeout(DEADLINE_S)
    return server


def read_to_end(sock: socket.socket) -> bytes:
    whole = bytearray()
    while data := sock.recv(1 << 16):
        whole += data
    return bytes(whole)


def send_all(sock: socket.socket, data: bytes) -> None:
    sock.sendall(data)
    sock.shutdown(socket.SHUT_WR)


@pytest.mark.parametrize("address", ["127.0.0.1", "0.0.0.0", "::1"])
def test_both_directions_carry_large_data_at_once_and_end_separately(bridge: Path, port: int, address: str) -> None:
    with ide(port, address) as listener, connected(bridge) as client, accepted(listener) as server:
        senders = [threading.Thread(target=send_all, args=(client, LARGE))]
        got: list[bytes] = []
        reader = threading.Thread(target=lambda: got.append(read_to_end(server)))
        for thread in (*senders, reader):
            thread.start()
        server_sends = threading.Thread(target=send_all, args=(server, LARGE[::-1]))
        server_sends.start()
        assert read_to_end(client) == LARGE[::-1]
        for thread in (*senders, reader, server_sends):
            thread.join(DEADLINE_S)
        assert got == [LARGE]


def test_a_connection_is_refused_until_the_ide_listens(bridge: Path, port: int) -> None:
    with connected(bridge) as early:
        assert early.recv(1) == b""
    with ide(port) as listener, connected(bridge) as client, accepted(listener) as server:
        client.sendall(b"hello")
        assert server.recv(5) == b"hello"


def test_a_client_that_finished_sending_still_gets_its_answer(bridge: Path, port: int) -> None:
    with ide(port) as listener, connected(bridge) as client, accepted(listener) as server:
        send_all(client, b"request")
        assert read_to_end(server) == b"request"
        send_all(server, b"answer")
        assert read_to_end(client) == b"answer"


def test_a_client_that_goes_away_ends_its_connection_to_the_ide_and_no_other(bridge: Path, port: int) -> None:
    with ide(port) as listener, connected(bridge) as stays, accepted(listener) as other:
        with connected(bridge) as leaves:
            server = accepted(listener)
            leaves.sendall(b"x")
        with server:
            assert read_to_end(server) == b"x"
        stays.sendall(b"still here")
        assert other.recv(64) == b"still here"


def test_a_reader_that_does_not_read_stops_the_sender(bridge: Path, port: int) -> None:
    with ide(port) as listener, connected(bridge) as client, accepted(listener) as server:
        server.settimeout(1)
        sent = 0
        with contextlib.suppress(TimeoutError):
            while sent < 1 << 30:
                sent += server.send(LARGE)
        assert sent < 1 << 30
        # Others are served meanwhile, and nothing of it is lost.
        with connected(bridge) as another, accepted(listener) as its_server:
            another.sendall(b"ping")
            assert its_server.recv(4) == b"ping"
        server.shutdown(socket.SHUT_WR)
        assert len(read_to_end(client)) == sent


def test_many_connections_at_once_are_all_served(bridge: Path, port: int) -> None:
    with ide(port) as listener:
        clients = [connected(bridge) for _ in range(200)]
        servers = []
        for number, client in enumerate(clients):
            client.sendall(b"%03d" % number)
            servers.append(accepted(listener))
        assert sorted(server.recv(3) for server in servers) == [b"%03d" % number for number in range(200)]
        for sock in (*clients, *servers):
            sock.close()


def test_it_imports_neither_asyncio_nor_typing(tmp_path: Path) -> None:
    """The first page of its IDE waits for it."""
    script = "import sys; sys.path.append(sys.argv[1]); import workspaced.bridge; print(*sys.modules)"
    command = [sys.executable, "-I", "-S", "-B", "-c", script, str(FOLDER.parent)]
    imported = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    assert "workspaced.relay" in imported
    assert {"asyncio", "typing", "re", "json"}.isdisjoint(imported)
