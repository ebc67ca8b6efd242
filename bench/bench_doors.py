"""The doors of a workspace on a whole CodeHub: SSH, a terminal under a flood, a port, exec, and idle streams.

Each figure that has a peer is measured beside it in the same run: OpenSSH without CodeHub, nginx in front of the same
server, `docker exec`. Needs what the tests need (openssh-server, nginx, wrk; Docker for one row).
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import socket
import statistics
import struct
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
from websockets.sync.client import ClientConnection, connect

from codehub.cli.ssh_files import CIPHERS
from codehub.workspaced.vt import Terminal as Model
from testing.codehub.docker import TINY_IMAGE, DockerEngine
from testing.codehub.doors import Doors, open_doors
from testing.codehub.full_stack import TIMEOUT_S, fresh_stack
from testing.codehub.laptop import Laptop
from testing.codehub.services import service_dir
from testing.ports import free_port

Row = dict[str, object]
COPIED = 1 << 30
FLOOD = 50_000_000
STREAMS = 2_000
_EXECS = 30
_WRK_S = 8
_WRK_ROUNDS = 3


def measure() -> list[Row]:
    with fresh_stack() as stack:
        stack.with_tiny_ide()
        stack.up()
        doors = open_doors(stack)
        place = service_dir()
        try:
            return [*_scp(doors, place), *_terminal(doors), *_port(doors, place), *_exec(doors, place), *_idle(doors)]
        finally:
            shutil.rmtree(place, ignore_errors=True)


# ── scp ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _scp(doors: Doors, place: Path) -> list[Row]:
    home = place / "laptop"
    home.mkdir()
    laptop = Laptop(doors, home)
    laptop.ssh(laptop.host, "true")
    file = place / "large"
    with file.open("wb") as out:
        out.truncate(COPIED)

    def scp(*words: str) -> float:
        return _fastest(1, lambda: _checked(laptop.run("scp", "-q", *words)))

    with _sshd(place) as config:
        # In turns, so that other work on the machine slows down all of them.
        rounds = [
            (
                scp("-F", str(laptop.config), str(file), f"{laptop.host}:/dev/null"),
                scp("-F", str(config), str(file), "direct:/dev/null"),
                scp("-F", str(config), "-o", f"Ciphers={CIPHERS}", str(file), "direct:/dev/null"),
            )
            for _ in range(5)
        ]
    ours, default, same = (min(times) for times in zip(*rounds, strict=True))
    return [
        {
            "what": "scp of 1 GB",
            "value": COPIED / 1e6 / ours,
            "unit": "MB/s",
            "peer": "OpenSSH directly",
            "ratio": default / ours,
            "floor": 0.8,
        },
        {
            "what": "the same, with our choice of ciphers on both sides",
            "value": COPIED / 1e6 / ours,
            "unit": "MB/s",
            "peer": "OpenSSH directly",
            "ratio": same / ours,
        },
    ]


@contextlib.contextmanager
def _sshd(place: Path) -> Iterator[Path]:
    """A plain sshd on this machine, and a client's configuration for it."""
    folder = place / "sshd"
    folder.mkdir(mode=0o700)
    for name in ("host", "user"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / name], check=True)
    port = free_port()
    server = folder / "sshd_config"
    server.write_text(
        f"Port {port}\nListenAddress 127.0.0.1\nHostKey {folder}/host\nAuthorizedKeysFile {folder}/user.pub\n"
        f"StrictModes no\nUsePAM no\nPidFile none\nSubsystem sftp internal-sftp\nPermitRootLogin yes\n"
    )
    client = folder / "config"
    known = folder / "known"
    known.write_text(f"[127.0.0.1]:{port} {(folder / 'host.pub').read_text()}")
    client.write_text(
        f"Host direct\n  HostName 127.0.0.1\n  Port {port}\n  IdentityFile {folder}/user\n  UserKnownHostsFile {known}\n"
    )
    Path("/run/sshd").mkdir(exist_ok=True)
    process = subprocess.Popen(["/usr/sbin/sshd", "-D", "-e", "-f", server], stderr=subprocess.DEVNULL)
    try:
        _until(lambda: _listens(port))
        yield client
    finally:
        process.kill()
        process.wait()


# ── a terminal under a flood ─────────────────────────────────────────────────────────────────────────────────────────


def _terminal(doors: Doors) -> list[Row]:
    with doors.client() as client:
        # Zeros only, so that the echo of a letter is found in between; the terminal itself echoes.
        command = f"stty -onlcr -icanon; head -c {FLOOD} /dev/zero | tr '\\0' 0; cat > /dev/null"
        made = client.post(doors.api + "/terminals", json={"command": command, "cols": 120, "rows": 40}).json()
    echoes, received, took = _flood(doors, made["id"])
    again = sorted(_attach_s(doors, made["id"]) for _ in range(10))
    with doors.client() as client:
        client.delete(f"{doors.api}/terminals/{made['id']}")
    return [
        {"what": "terminal, flood of 50 MB: lost", "value": float(FLOOD - received), "unit": "bytes", "floor": 0},
        {"what": "terminal, flood of 50 MB", "value": received / 1e6 / took, "unit": "MB/s"},
        {"what": "key echo during the flood, p50", "value": statistics.median(echoes) * 1000, "unit": "ms"},
        {"what": "key echo during the flood, p99", "value": _p99(echoes) * 1000, "unit": "ms", "floor": 50},
        {
            "what": "re-attach to the screen, p50",
            "value": statistics.median(again) * 1000,
            "unit": "ms",
            "floor": 150,
        },
    ]


def _attached(doors: Doors, terminal: str) -> contextlib.AbstractContextManager[ClientConnection]:
    address = f"{doors.stack.url.replace('http', 'ws', 1)}{doors.api}/terminals/{terminal}/attach"
    headers = {"Authorization": f"Bearer {doors.token}"}
    return connect(address, additional_headers=headers, max_size=None, proxy=None, compression=None)


def _flood(doors: Doors, terminal: str) -> tuple[list[float], int, float]:
    """Latencies of echoed keys, how many zeros came, and how long it took."""
    echoes: list[float] = []
    zeros = 0
    typed_at = 0.0
    with _attached(doors, terminal) as socket_:
        begun = time.monotonic()
        while zeros < FLOOD:
            message = socket_.recv(timeout=TIMEOUT_S)
            assert isinstance(message, bytes)
            if message[:1] == b"S":
                (at,) = struct.unpack(">Q", message[1:9])
                zeros += at  # what came before is drawn by the screen
            elif message[:1] == b"O":
                (at,) = struct.unpack(">Q", message[1:9])
                body = message[9:]
                zeros += body.count(b"0")
                if typed_at and b"k" in body:
                    echoes.append(time.monotonic() - typed_at)
                    typed_at = 0.0
                socket_.send(b"A" + struct.pack(">Q", at + len(body)))
            if not typed_at:
                typed_at = time.monotonic()
                socket_.send(b"Ik")
        return echoes, zeros, time.monotonic() - begun


def _attach_s(doors: Doors, terminal: str) -> float:
    begun = time.monotonic()
    with _attached(doors, terminal) as socket_:
        message = socket_.recv(timeout=TIMEOUT_S)
        took = time.monotonic() - begun
    assert isinstance(message, bytes)
    model = Model(120, 40)
    model.feed(message[13:])
    assert "0" * 120 in "".join(model.screen.lines[10].chars)
    return took


# ── a port ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def _port(doors: Doors, place: Path) -> list[Row]:
    inside, outside, front = (free_port() for _ in range(3))
    nginx = shutil.which("nginx", path=os.environ["PATH"] + ":/usr/sbin") or "nginx"
    with doors.client() as client:
        client.put(doors.api + "/files/app.conf", content=_application(inside, "/tmp/app").encode())
        client.post(
            doors.api + "/processes",
            json={"command": f"mkdir -p /tmp/app; exec {nginx} -p /tmp/app -e stderr -c ~/app.conf"},
        )
        _until(lambda: inside in {p["port"] for p in client.get(doors.api + "/ports").json()["items"]})
    proxied = (
        f"upstream app {{ server 127.0.0.1:{outside}; keepalive 64; }} server {{ listen 127.0.0.1:{front}; location / "
        '{ proxy_pass http://app; proxy_http_version 1.1; proxy_set_header Connection ""; proxy_buffering off; } }'
    )
    folders = [place / name for name in ("app", "front")]
    texts = [_application(outside, str(folders[0])), _nginx(proxied, str(folders[1]))]
    processes = []
    for folder, text in zip(folders, texts, strict=True):
        folder.mkdir()
        (folder / "nginx.conf").write_text(text)
        processes.append(
            subprocess.Popen(
                [nginx, "-p", folder, "-e", "stderr", "-c", folder / "nginx.conf"], stderr=subprocess.DEVNULL
            )
        )
    try:
        _until(lambda: _listens(front) and _listens(outside))
        base = doors.stack.value("CODEHUB_WORKSPACE_BASE_URL").replace("localhost", "127.0.0.1")
        # In turns, so that other work on the machine slows down both.
        pairs = [
            (
                _wrk(f"{base}/w/{doors.workspace_id}/port/{inside}/", f"Authorization: Bearer {doors.token}"),
                _wrk(f"http://127.0.0.1:{front}/", "X-Nothing: x"),
            )
            for _ in range(_WRK_ROUNDS)
        ]
    finally:
        for process in processes:
            process.terminate()
            process.wait()
    return [
        {
            "what": "port, small GET",
            "value": statistics.median(ours for ours, _ in pairs),
            "unit": "requests/s",
            "peer": "nginx",
            "ratio": statistics.median(ours / peer for ours, peer in pairs),
            "floor": 0.5,
        }
    ]


def _nginx(body: str, folder: str) -> str:
    return (
        f"daemon off; worker_processes 1; pid {folder}/pid; events {{ worker_connections 1024; }} "
        f"http {{ access_log off; client_body_temp_path {folder}/b; proxy_temp_path {folder}/p; "
        f"fastcgi_temp_path {folder}/f; uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s; "
        f"keepalive_requests 1000000; {body} }}\n"
    )


def _application(port: int, folder: str) -> str:
    return _nginx(f'server {{ listen 127.0.0.1:{port}; location / {{ return 200 "{"x" * 100}"; }} }}', folder)


def _wrk(url: str, header: str) -> float:
    done = subprocess.run(
        ["wrk", "-t1", "-c32", f"-d{_WRK_S}s", "-H", header, url], capture_output=True, text=True, check=True
    )
    assert "Non-2xx" not in done.stdout, done.stdout
    found = re.search(r"Requests/sec:\s+([\d.]+)", done.stdout)
    assert found is not None, done.stdout
    return float(found[1])


# ── exec ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _exec(doors: Doors, place: Path) -> list[Row]:
    took = []
    with doors.client() as client:
        for _ in range(_EXECS):
            begun = time.monotonic()
            assert client.post(doors.api + "/exec", json={"command": ["true"]}).json()["exit_code"] == 0
            took.append(time.monotonic() - begun)
    ours = statistics.median(took)
    row: Row = {"what": "exec of true, p50", "value": ours * 1000, "unit": "ms"}
    if shutil.which("dockerd", path=os.environ["PATH"] + ":/usr/sbin"):
        row |= {"peer": "docker exec", "ratio": ours / _docker_exec(place), "floor": 0.5}
    return [row]


def _docker_exec(place: Path) -> float:
    base = place / "docker"
    base.mkdir()
    engine = DockerEngine(base)
    engine.start()
    environment = {**os.environ, "DOCKER_HOST": engine.host}
    try:
        engine.load_tiny_image()
        run = [
            "docker",
            "run",
            "-d",
            "--network",
            "none",
            TINY_IMAGE,
            "python3",
            "-c",
            "import time; time.sleep(600)",
        ]
        made = subprocess.run(run, env=environment, capture_output=True, text=True, check=True).stdout.strip()
        took = []
        for _ in range(_EXECS):
            begun = time.monotonic()
            # The test image has no `true` of its own.
            subprocess.run(["docker", "exec", made, "/bin/sh", "-c", ":"], env=environment, check=True)
            took.append(time.monotonic() - begun)
        subprocess.run(["docker", "rm", "-f", made], env=environment, capture_output=True, check=True)
        return statistics.median(took)
    finally:
        engine.stop()


# ── idle streams ─────────────────────────────────────────────────────────────────────────────────────────────────────


def _idle(doors: Doors) -> list[Row]:
    """Streams to an SSH server are many processes; to a listener that says nothing they cost what the proxy costs."""
    port = free_port()
    address = ("127.0.0.1", port)
    listener = (
        f"import socket; s = socket.create_server({address}, backlog=4096); k = []\nwhile 1: k.append(s.accept())"
    )
    with doors.client() as client:
        client.post(
            doors.api + "/processes",
            json={"command": ["sh", "-c", 'ulimit -n 8192; exec python3 -c "$1"', "sh", listener]},
        )
        _until(lambda: port in {p["port"] for p in client.get(doors.api + "/ports").json()["items"]})
    base = doors.stack.value("CODEHUB_WORKSPACE_BASE_URL").rpartition(":")[2].strip("/")
    (proxy,) = doors.stack.processes("proxy")
    with contextlib.ExitStack() as stack:
        before = _memory(proxy)
        for _ in range(STREAMS):
            opened = stack.enter_context(socket.create_connection(("127.0.0.1", int(base)), timeout=TIMEOUT_S))
            opened.sendall(
                f"GET /_codehub/{doors.workspace_id}/tcp/{port} HTTP/1.1\r\nHost: localhost\r\n"
                f"Authorization: Bearer {doors.token}\r\nConnection: Upgrade\r\nUpgrade: codehub-stream\r\n\r\n".encode()
            )
            assert opened.recv(4096).startswith(b"HTTP/1.1 101")
        each = (_memory(proxy) - before) / STREAMS
    return [
        {
            "what": f"{STREAMS} idle streams, memory of the proxy for each",
            "value": each / 1000,
            "unit": "KB",
            "floor": 20,
        }
    ]


def _memory(process: psutil.Process) -> int:
    return int(process.memory_full_info().uss)


# ── all ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _checked(done: subprocess.CompletedProcess[bytes]) -> None:
    assert done.returncode == 0, done.stderr.decode()


def _fastest(times: int, work: Callable[[], None]) -> float:
    took = []
    for _ in range(times):
        begun = time.monotonic()
        work()
        took.append(time.monotonic() - begun)
    return min(took)


def _p99(values: list[float]) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * 0.99))]


def _listens(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=5):
        return True
    return False


def _until(done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.1)
