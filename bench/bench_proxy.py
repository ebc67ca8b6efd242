"""The proxy beside nginx (one worker), traefik and configurable-http-proxy: the same upstream, one after another.

Ours has every check on (bench/proxy_server.py). Each proxy has one core, the load and the upstreams, which are in C
(bench/sockets.c), have the other, so that the proxy is what is measured; "core used" says whether it was. A relay without
HTTP shows what any proxy in user space must pay. Peers that cannot be installed here are left out.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from bench.proxy_peers import (
    GIGABYTE,
    LOAD_CORES,
    Proxy,
    compiled,
    configurable,
    family,
    file_server,
    first_line,
    nginx,
    ours,
    process,
    relay,
    traefik,
)

SECONDS = 5
TRANSFERS = 3


class Load:
    """What a proxy used of its core while it was loaded: all of it, if it was the proxy that was measured. What each
    request costs it holds on a busy machine too."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._began = (time.monotonic(), self._cpu())

    def _cpu(self) -> float:
        return sum(sum(one.cpu_times()[:2]) for one in family(self._pid))

    def put(self, figures: dict[str, float], what: str, rate: float) -> None:
        began, cpu = self._began
        used = (self._cpu() - cpu) / (time.monotonic() - began)
        figures[f"{what}, % of its core used"] = 100 * used
        figures[f"{what}, µs of CPU each"] = used / rate * 1e6


def wrk(url: str, headers: dict[str, str], *more: str) -> tuple[float, float]:
    """(requests a second, p99 in ms)."""
    options = [option for name, value in headers.items() for option in ("-H", f"{name}: {value}")]
    done = subprocess.run(
        ["wrk", "-t1", "-c32", f"-d{SECONDS}", "--latency", *options, *more, url],
        capture_output=True,
        text=True,
        check=True,
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


def echoes(program: str, proxy: Proxy, path: str, under_way: int) -> float:
    """1 KB messages a second over 32 connections."""
    done = subprocess.run(
        [program, "load", str(proxy.port), "32", str(under_way), str(SECONDS)],
        input=_upgrade(proxy, path),
        capture_output=True,
        check=True,
        timeout=120,
    )
    return float(done.stdout)


async def idle_memory(proxy: Proxy, path: str) -> float:
    """KB of the proxy's memory that one idle WebSocket of a thousand costs."""
    before = _memory(proxy.pid)
    held = [await _socket(proxy, path) for _ in range(1000)]
    after = _memory(proxy.pid)
    for _, writer in held:
        writer.transport.abort()
    return (after - before) / 1000 / 1024


def _memory(pid: int) -> int:
    return sum(one.memory_info().rss for one in family(pid))


def peak(pid: int, during: Callable[[], float]) -> tuple[float, float]:
    """(what `during` measured, MB that the proxy's memory grew meanwhile at the most)."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")  # the high-water mark begins again
    before = psutil.Process(pid).memory_info().rss
    measured = during()
    high = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert high is not None
    return measured, (int(high[1]) * 1024 - before) / 1e6


def transfer(proxy: Proxy, path: str, *, upload: Path | None) -> float:
    """MB a second for one gigabyte, the median of a few."""
    options = [option for name, value in proxy.headers.items() for option in ("-H", f"{name}: {value}")]
    if upload is not None:
        options += ["-T", str(upload), "-H", "Expect:"]
    command = ["curl", "-fsS", "-o", "/dev/null", *options, f"http://127.0.0.1:{proxy.port}{path}"]
    took = []
    for _ in range(TRANSFERS):
        began = time.monotonic()
        subprocess.run(command, check=True, timeout=120)
        took.append(time.monotonic() - began)
    return GIGABYTE / 1e6 / statistics.median(took)


def measure() -> list[dict[str, object]]:
    figures: dict[str, dict[str, float]] = {}
    place = Path(tempfile.mkdtemp(prefix="bench-proxy-"))
    place.chmod(0o755)
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, LOAD_CORES)  # and whatever is started from here on, until it is pinned
    try:
        program = compiled(place)
        with file_server(place) as files, process(program, "echo") as mirror:
            sockets = int(first_line(mirror))
            with ours(files) as one, ours(sockets) as two:
                _one(figures, one, two, one.path, two.path, place)
            with relay(program, files) as one, relay(program, sockets) as two:
                _one(figures, one, two, "", "", place)
            for peer in (nginx, traefik, configurable):
                try:
                    with peer(place, files, sockets) as proxy:
                        _one(figures, proxy, proxy, "/files", "/sockets", place)
                except (OSError, subprocess.SubprocessError, AssertionError) as error:
                    print(f"{peer.__name__} is left out: {error}", file=sys.stderr)
    finally:
        os.sched_setaffinity(0, before)
        shutil.rmtree(place, ignore_errors=True)
    return _rows(figures)


def _one(figures: dict[str, dict[str, float]], files: Proxy, sockets: Proxy, a: str, b: str, place: Path) -> None:
    base = f"http://127.0.0.1:{files.port}{a}"
    huge = place / "www/huge"
    mine = figures[files.name] = {}
    mine["idle WebSocket, KB"] = asyncio.run(idle_memory(sockets, f"{b}/ws"))
    load = Load(files.pid)
    mine["GET 100 B, requests/s"], mine["GET 100 B, p99 ms"] = wrk(f"{base}/small", files.headers)
    load.put(mine, "GET 100 B", mine["GET 100 B, requests/s"])
    # A thousand addresses, each with another head in its answer: nothing is the same twice in a row.
    script = place / "each.lua"
    script.write_text(
        f'local n = 0\nrequest = function() n = (n + 1) % 1000; return wrk.format(nil, "{a}/each/" .. n) end\n'
    )
    load = Load(files.pid)
    mine["GET 100 B, 1,000 addresses, requests/s"], _ = wrk(f"{base}/", files.headers, "-s", str(script))
    load.put(mine, "GET 100 B, 1,000 addresses", mine["GET 100 B, 1,000 addresses, requests/s"])
    mine["GET 100 KB, requests/s"], mine["GET 100 KB, p99 ms"] = wrk(f"{base}/large", files.headers)
    for what, under_way in (("WebSocket echo 1 KB", 1), ("WebSocket echo 1 KB, 8 under way", 8)):
        load = Load(sockets.pid)
        mine[f"{what}, messages/s"] = rate = echoes(str(place / "sockets"), sockets, f"{b}/ws", under_way)
        load.put(mine, what, rate)
    for way, proxy, path, upload in (("down", files, f"{a}/huge", None), ("up", sockets, f"{b}/up", huge)):
        speed, grown = peak(proxy.main, lambda: transfer(proxy, path, upload=upload))  # noqa: B023 - called here
        mine[f"1 GB {way}, MB/s"] = speed
        mine[f"1 GB {way}, MB of memory grown"] = grown
    mine["memory after, MB"] = _memory(files.pid) / 1e6


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
