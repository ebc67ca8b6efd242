"""Another local user may listen at CodeHub's port while it is stopped: no credential of the data directory goes there."""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from codehub.cli.local_installation import serves
from codehub.data_dir import Lock
from testing.codehub.dashboard import PASSWORD

_CODEHUB = str(Path(sys.executable).with_name("codehub"))
_ANSWER = json.dumps({"session_key": "k", "token": "cht_x", "id": "1", "items": [], "total": 0}).encode()


class Thief:
    """Answers every request as CodeHub might, and keeps what it is sent."""

    def __init__(self, port: int = 0) -> None:
        self.heard = b""
        self.listener = socket.create_server(("127.0.0.1", port))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self.listener.accept()
                with connection:
                    self.heard += _request(connection)
                    length = str(len(_ANSWER)).encode()
                    connection.sendall(
                        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: "
                        + length + b"\r\n\r\n" + _ANSWER
                    )  # fmt: skip


def _request(connection: socket.socket) -> bytes:
    with connection.makefile("rb") as file:
        head = b"".join(iter(file.readline, b"\r\n"))
        length = re.search(rb"(?i)content-length: (\d+)", head)
        return head + file.read(int(length[1]) if length else 0)


@contextlib.contextmanager
def thief_at(port: int = 0) -> Iterator[Thief]:
    made = Thief(port)
    try:
        yield made
    finally:
        made.listener.shutdown(socket.SHUT_RDWR)
        made.listener.close()


@pytest.fixture
def thief() -> Iterator[Thief]:
    with thief_at() as made:
        yield made


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    made = tmp_path / "data"
    made.mkdir()
    (made / "admin-password").write_text(PASSWORD)
    return made


@contextlib.contextmanager
def running(data_dir: Path, *binds: str) -> Iterator[list[int]]:
    """An `up` as far as others can see: a process that holds the data directory and listens. Yields its ports."""
    script = (
        "import socket, sys; from pathlib import Path; from codehub.data_dir import Lock\n"
        "with Lock(Path(sys.argv[1])):\n"
        "    made = [socket.create_server((host, 0), family=socket.AF_INET6 if ':' in host else socket.AF_INET)\n"
        "            for host in sys.argv[2:]]\n"
        "    print(*(each.getsockname()[1] for each in made), flush=True)\n"
        "    sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, str(data_dir), *binds],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        yield [int(port) for port in process.stdout.readline().split()]
        process.communicate()


def codehub(
    tmp_path: Path, data_dir: Path, url: str, *words: str, said: str | None = None
) -> subprocess.CompletedProcess[str]:
    environment = {
        "HOME": str(tmp_path),
        "PATH": os.environ["PATH"],
        "CODEHUB_DATA_DIR": str(data_dir),
        "CODEHUB_PUBLIC_BASE_URL": url,
        "CODEHUB_SERVER": url,
    }
    return subprocess.run(
        [_CODEHUB, *words], env=environment, capture_output=True, text=True, timeout=120, input=said
    )


def test_the_demo_sends_no_password_to_whoever_listens_while_codehub_is_stopped(
    tmp_path: Path, data_dir: Path, thief: Thief
) -> None:
    codehub(tmp_path, data_dir, thief.url, "demo", "--no-wait")
    assert thief.heard, "it was asked"
    assert PASSWORD.encode() not in thief.heard


def test_the_demo_sends_no_password_to_whoever_listens_in_the_place_of_a_running_codehub(
    tmp_path: Path, data_dir: Path, thief: Thief
) -> None:
    """CodeHub takes another port if its own is taken."""
    with running(data_dir, "127.0.0.1"):
        codehub(tmp_path, data_dir, thief.url, "demo", "--no-wait")
    assert thief.heard
    assert PASSWORD.encode() not in thief.heard


@pytest.mark.parametrize("words", [("ws", "ls"), ("demo",), ("logout",), ("whoami",)], ids=" ".join)
def test_a_token_that_the_demo_created_goes_to_its_own_codehub_only(
    tmp_path: Path, data_dir: Path, thief: Thief, words: tuple[str, ...]
) -> None:
    kept = {"username": "admin", "token": "cht_secret", "token_id": "1", "data_dir": str(data_dir)}
    file = tmp_path / ".config/codehub/credentials.json"
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps({"servers": {thief.url: kept}, "default": thief.url}))
    done = codehub(tmp_path, data_dir, thief.url, *words)
    assert b"cht_secret" not in thief.heard
    if words != ("logout",):
        assert (done.returncode, "does not listen at" in done.stderr) == (7, True), done.stderr


@contextlib.contextmanager
def answering(data_dir: Path, port: int = 0) -> Iterator[int]:
    """A running CodeHub that answers requests. Yields its port."""
    script = (
        "import http.server, sys; from pathlib import Path; from codehub.data_dir import Lock\n"
        "class Answers(http.server.BaseHTTPRequestHandler):\n"
        "    protocol_version = 'HTTP/1.1'\n"
        "    def do_GET(self):\n"
        "        self.rfile.read(int(self.headers.get('Content-Length') or 0))\n"
        "        self.send_response(200)\n"
        "        self.send_header('Content-Type', 'application/json')\n"
        "        self.send_header('Content-Length', str(len(sys.argv[3])))\n"
        "        self.end_headers()\n"
        "        self.wfile.write(sys.argv[3].encode())\n"
        "    do_POST = do_GET\n"
        "    def log_message(self, *words): pass\n"
        "with Lock(Path(sys.argv[1])):\n"
        "    server = http.server.ThreadingHTTPServer(('127.0.0.1', int(sys.argv[2])), Answers)\n"
        "    print(server.server_port, flush=True)\n"
        "    server.serve_forever()\n"
    )
    command = [sys.executable, "-c", script, str(data_dir), str(port), _ANSWER.decode()]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline())
        finally:
            process.kill()


def test_a_token_of_a_login_goes_to_the_codehub_that_it_was_created_by_only(tmp_path: Path, data_dir: Path) -> None:
    words = ("login", "-u", "admin", "--password-stdin")
    with answering(data_dir) as port:
        url = f"http://127.0.0.1:{port}"
        done = codehub(tmp_path, data_dir, url, *words, said=PASSWORD)
        assert done.returncode == 0, done.stderr
        assert codehub(tmp_path, data_dir, url, "ws", "ls").returncode == 0
    with thief_at(port) as thief:
        done = codehub(tmp_path, data_dir, url, "ws", "ls")
        assert (done.returncode, "does not listen at" in done.stderr) == (7, True), done.stderr
        assert b"cht_x" not in thief.heard
        # Whoever signs in to another CodeHub at this address does so without this data directory.
        assert codehub(tmp_path, data_dir, url, *words, said=PASSWORD).returncode == 0
        assert codehub(tmp_path, data_dir, url, "ws", "ls").returncode == 0


@pytest.mark.needs("root")
def test_a_process_of_another_user_is_not_the_codehub_whose_number_it_has(data_dir: Path) -> None:
    """A CodeHub in a container writes its number there. Here, anybody's process may have that number."""
    script = (
        "import os, socket, sys; made = socket.create_server(('127.0.0.1', 0)); os.setuid(65534)\n"
        "print(made.getsockname()[1], flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        port = process.stdout.readline().strip()
        with Lock(data_dir):
            (data_dir / "up.lock").write_text(json.dumps({"pid": process.pid}))
            assert not serves(data_dir, f"http://127.0.0.1:{port}")
        process.communicate()


def test_the_process_that_holds_the_data_directory_is_found_where_it_listens(data_dir: Path, thief: Thief) -> None:
    with running(data_dir, "127.0.0.1", "0.0.0.0", "::1") as (loopback, anywhere, six):
        for url in (f"http://127.0.0.1:{loopback}", f"http://127.0.0.1:{anywhere}", f"http://[::1]:{six}"):
            assert serves(data_dir, url), url
        for url in (thief.url, f"http://127.0.0.2:{loopback}", f"http://[::1]:{loopback}", f"http://127.0.0.1:{six}"):
            assert not serves(data_dir, url), url
        assert serves(data_dir, "https://codehub.example.org"), "its certificate proves it"
    assert not serves(data_dir, "https://codehub.example.org")


def test_a_port_of_this_very_process_is_recognized(data_dir: Path, thief: Thief) -> None:
    with Lock(data_dir):
        assert serves(data_dir, thief.url)
