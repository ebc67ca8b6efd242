"""Attacks by way of upgraded connections: SSH's forwarding, streams of others, and pages that open WebSockets."""

from __future__ import annotations

import contextlib
import http.client
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from testing.codehub.doors import Doors, open_doors, token_of_another_user
from testing.codehub.full_stack import TIMEOUT_S
from testing.codehub.laptop import Laptop

UPGRADE = {"Connection": "Upgrade", "Upgrade": "codehub-stream"}
GREETER = """import socket, sys
server = socket.create_server(("127.0.0.1", int(sys.argv[1])))
while True:
    with server.accept()[0] as connection:
        connection.sendall(b"hello from the workspace")
"""
WEBSOCKET = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
}


@pytest.fixture(scope="module")
def laptop(doors: Doors, tmp_path_factory: pytest.TempPathFactory) -> Laptop:
    return Laptop(doors, tmp_path_factory.mktemp("laptop"))


@contextlib.contextmanager
def greeting() -> Iterator[int]:
    """A service on this machine's loopback that greets whoever connects."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    with server.accept()[0] as connection:
                        connection.sendall(b"hello from the machine")

        threading.Thread(target=serve, daemon=True).start()
        yield int(server.getsockname()[1])


def status(port: int, path: str, headers: dict[str, str]) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request("GET", path, headers=headers)
        return connection.getresponse().status
    finally:
        connection.close()


@pytest.mark.needs("sshd")
def test_ssh_forwards_neither_to_this_machine_nor_to_another_workspace(laptop: Laptop, tmp_path: Path) -> None:
    ssh = ("ssh", "-F", str(laptop.config))
    with greeting() as port:
        # The same service in the workspace is reached, so that only the place of the other one is wrong.
        server = laptop.doors.serve(["python3", "-c", GREETER, str(port)], port)
        inside = laptop.run(*ssh, "-W", f"127.0.0.1:{port}", laptop.host)
        assert inside.stdout == b"hello from the workspace", inside.stderr
        laptop.doors.kill(server)
        done = laptop.run(*ssh, "-W", f"127.0.0.1:{port}", laptop.host)
        assert (done.returncode != 0, done.stdout) == (True, b""), done.stderr
    stack = laptop.doors.stack
    before = set((stack.data_dir / "run").rglob("*.sock"))
    neighbour = open_doors(stack, "neighbour")
    found = set((stack.data_dir / "run").rglob("*.sock")) - before
    assert any("workspaced.sock" in str(path) for path in found), "the neighbour's helper listens"
    for number, victim in enumerate(found):
        local = tmp_path / str(number)
        with laptop.background("-N", "-L", f"{local}:{victim}", laptop.host):
            deadline = time.monotonic() + TIMEOUT_S
            while not local.exists():
                assert time.monotonic() < deadline
                time.sleep(0.05)
            with socket.socket(socket.AF_UNIX) as client:
                client.settimeout(TIMEOUT_S)
                client.connect(str(local))
                with contextlib.suppress(OSError):
                    client.sendall(b"GET /hello HTTP/1.1\r\nHost: x\r\n\r\n")
                    assert client.recv(100) == b"", victim
    with neighbour.client() as client:
        client.delete(neighbour.api)


@pytest.mark.needs("sshd")
def test_a_clients_environment_changes_no_variable_that_programs_rely_on(laptop: Laptop) -> None:
    names = ("LD_PRELOAD", "PATH", "CODEHUB_WORKSPACE_ID", "BASH_ENV", "SSH_AUTH_SOCK", "PYTHONPATH")
    # In one option: ssh takes the first and ignores the others.
    sent = " ".join(["LC_CONTROL=arrived", *(f"{name}=injected" for name in names)])
    shown = laptop.ssh("-o", f"SetEnv={sent}", laptop.host, "env")
    assert b"LC_CONTROL=arrived" in shown
    assert b"injected" not in shown


def test_streams_need_a_token_of_the_owner(doors: Doors) -> None:
    port = urlsplit(doors.stack.value("CODEHUB_WORKSPACE_BASE_URL")).port or 80
    other = token_of_another_user(doors, "stranger")
    for door in ("ssh", "tcp/22"):
        path = f"/_codehub/{doors.workspace_id}/{door}"
        for token, expected in ((None, 401), ("cht_wrong", 401), (other, 403)):
            headers = UPGRADE | ({"Authorization": f"Bearer {token}"} if token else {})
            assert status(port, path, headers) == expected, (door, token)


@pytest.mark.needs("sshd")
@pytest.mark.usefixtures("laptop")  # its key: without one, nobody gets an SSH stream
@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://127.0.0.1:1", "file://"])
def test_no_connection_is_upgraded_for_a_page_of_another_origin(doors: Doors, origin: str) -> None:
    """With the owner's token, so that only the origin is wrong: a browser sends it whether the page wants that or not."""
    proxy = urlsplit(doors.stack.value("CODEHUB_WORKSPACE_BASE_URL")).port or 80
    headers = WEBSOCKET | {"Authorization": f"Bearer {doors.token}", "Origin": origin}
    for path in (f"/w/{doors.workspace_id}/", f"/w/{doors.workspace_id}/port/3000/"):
        assert status(proxy, path, headers) == 403, path
    upgrade = UPGRADE | {"Authorization": f"Bearer {doors.token}"}
    for door in ("ssh", "tcp/22"):
        assert status(proxy, f"/_codehub/{doors.workspace_id}/{door}", upgrade | {"Origin": origin}) == 403, door
    assert status(proxy, f"/_codehub/{doors.workspace_id}/ssh", upgrade) == 101, "programs send no origin"
    # The API accepts the upgrade to say why in the close code: 4403.
    api = urlsplit(doors.stack.url)
    with doors.client() as client:
        terminal = client.post(doors.api + "/terminals", json={}).json()["id"]
    opened = socket.create_connection(("127.0.0.1", api.port or 80), timeout=TIMEOUT_S)
    with opened, opened.makefile("rb") as stream:
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        target = f"{doors.api}/terminals/{terminal}/attach"
        opened.sendall(f"GET {target} HTTP/1.1\r\nHost: {api.netloc}\r\n{lines}\r\n".encode())
        while stream.readline().strip():
            pass
        frame = stream.read(4)
        assert (frame[0] & 0x0F, int.from_bytes(frame[2:4], "big")) == (8, 4403), frame
    with doors.client() as client:
        client.delete(f"{doors.api}/terminals/{terminal}")
