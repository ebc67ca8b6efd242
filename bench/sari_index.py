"""sari's index beside ripgrep and ripgrepx on a generated tree, and its predecessor on a small one.

The benches `sari_index` and `sari_index_100k` are made of this. The peers are installed once, each in its own
environment under `.parts`. A query is repeated until it has had its share of time, so that slow peers do not make the
bench endless; sari's own are repeated often enough for a 99th percentile.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import venv
from dataclasses import dataclass
from pathlib import Path

from sari.index.ripgrep import PROGRAM
from testing.sari import trees

Row = dict[str, object]

_PARTS = trees.REPOSITORY / ".parts"
# name → (arguments of `search`, flags and pattern for ripgrep and ripgrepx, selective)
_QUERIES: dict[str, tuple[dict[str, object], list[str], bool]] = {
    "rare literal": ({"query": "unique_000777_fn"}, ["-F", "unique_000777_fn"], True),
    "literal": ({"query": "return handler_770"}, ["-F", "return handler_770"], True),
    "word": ({"query": "handler_78", "mode": "words"}, ["-w", "handler_78"], True),
    "regex": ({"query": r"def\s+unique_0007\d\d_fn", "mode": "regex"}, [r"def\s+unique_0007\d\d_fn"], True),
    "absent": ({"query": "zqxjkvzqnot"}, ["-F", "zqxjkvzqnot"], True),
    "frequent": ({"query": "return"}, ["-F", "return"], False),
}


def on_a_tree(size: int) -> list[Row]:
    scratch = Path(tempfile.mkdtemp(prefix=f"sari-bench-{size}-"))
    try:
        return _on_a_tree(scratch, size)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _on_a_tree(scratch: Path, size: int) -> list[Row]:
    root = trees.generated(scratch / "tree", size)
    walk = [PROGRAM, "--no-config", "--hidden", "--glob", "!.git"]
    by_ripgrep = {name: _timed([*walk, *flags, "./"], root) for name, (_, flags, _) in _QUERIES.items()}
    peer_index, by_peer = _ripgrepx(root, scratch / "rgx-cache")
    mine = _sari(root, scratch / "data")
    label = f"{size // 1000}k files"
    rows: list[Row] = [
        {
            "what": f"{label}: first index",
            "value": mine["first_index_s"],
            "unit": "s",
            "peer": f"ripgrepx {peer_index:.2f} s",
            "ratio": mine["first_index_s"] / peer_index,
            "floor": "≤ 2",
        },
        {"what": f"{label}: index size", "value": mine["index_mb"], "unit": "MB"},
        {
            "what": f"{label}: memory",
            "value": mine["memory_mb"],
            "unit": "MB",
            **({"floor": "≤ 300"} if size >= 100_000 else {}),
        },
    ]
    for name, (_, _, selective) in _QUERIES.items():
        rows += _query_rows(
            f"{label}: {name}", mine["queries"][name], by_ripgrep[name], by_peer[name], selective and size >= 100_000
        )
    bulk = mine["bulk"]
    rows.append({"what": f"{label}: found after one save", "value": mine["one_save_s"] * 1000, "unit": "ms"})
    rows.append(
        {
            "what": f"{label}: found after {bulk['changed']} changes ({bulk['found']})",
            "value": bulk["took_s"],
            "unit": "s",
        }
    )
    return rows


def _query_rows(what: str, mine: dict, theirs: Timed, peers: Timed, floors: bool) -> list[Row]:  # type: ignore[type-arg]
    times = sorted(mine["times"])
    p50, p99 = statistics.median(times), times[min(len(times) - 1, int(len(times) * 0.99))]
    same = "" if mine["total"] == theirs.lines else f", but ripgrep's {theirs.lines}"
    peers_own = "" if peers.lines == theirs.lines else f", {peers.lines} lines"
    return [
        {
            "what": f"{what} ({mine['total']} lines{same})",
            "value": p50 * 1000,
            "unit": f"ms p50 (p99 {p99 * 1000:.1f}, {len(times)} runs)",
            "peer": f"ripgrep {theirs.p50 * 1000:.0f} ms",
            "ratio": theirs.p50 / p50,
            "floor": "≥ 10" if floors else "",
        },
        {
            "what": what,
            "value": p50 * 1000,
            "unit": "ms p50",
            "peer": f"ripgrepx {peers.p50 * 1000:.0f} ms{peers_own}",
            "ratio": p50 / peers.p50,
            "floor": "≤ 3" if floors else "",
        },
    ]


@dataclass(frozen=True, slots=True)
class Timed:
    """A peer's command: the median of its times, and how many lines it printed."""

    p50: float
    lines: int


_SHARE_S = 5.0


def _timed(command: list[str], root: Path, env: dict[str, str] | None = None) -> Timed:
    """Run once to warm up, then for its share of time, ten times at most."""
    lines = _run(command, root, env)[1]
    times: list[float] = []
    while len(times) < 10 and (not times or sum(times) < _SHARE_S):
        times.append(_run(command, root, env)[0])
    return Timed(statistics.median(times), lines)


def _run(command: list[str], root: Path, env: dict[str, str] | None) -> tuple[float, int]:
    began = time.perf_counter()
    done = subprocess.run(
        command, cwd=root, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=env,
        check=False,
    )  # fmt: skip
    return time.perf_counter() - began, done.stdout.count(b"\n")


def _sari(root: Path, data: Path) -> dict:  # type: ignore[type-arg]
    # The peers distinguish case by default.
    request = {
        name: ({**arguments, "case": "sensitive"}, 100 if selective else 5)
        for name, (arguments, _, selective) in _QUERIES.items()
    }
    done = subprocess.run(
        [sys.executable, "-m", "bench.sari_index_probe", root, data],
        cwd=trees.REPOSITORY,
        input=json.dumps(request),
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)  # type: ignore[no-any-return]


def _environment(name: str, package: str) -> Path:
    """An environment of its own with one package in it."""
    target = _PARTS / name
    if not (target / "done").exists():
        venv.create(target, with_pip=True, clear=True)
        subprocess.run(
            [target / "bin/pip", "install", "-q", "--disable-pip-version-check", package],
            check=True,
            capture_output=True,
        )
        (target / "done").touch()
    return target / "bin"


# ripgrepx 0.4.0 takes its own walk of the tree, which opens each directory, for changes, and walks again without end; its
# answers then wait for the walk. In a user namespace that allows no watches it is as fast as can be (and sees no change).
_UNWATCHED = ["unshare", "-Ur", "sh", "-c", 'echo 0 > /proc/sys/user/max_inotify_watches && exec "$@"', "unwatched"]


def _ripgrepx(root: Path, cache: Path) -> tuple[float, dict[str, Timed]]:
    program = str(_environment("bench-ripgrepx", "ripgrepx==0.4.0") / "rgx")
    env = {**os.environ, "RGX_CACHE_DIR": str(cache)}
    began = time.perf_counter()
    _run([*_UNWATCHED, program, "--server", "start"], root, env)
    try:
        while time.perf_counter() - began < 300:
            said = subprocess.run(
                [program, "--server", "status"], cwd=root, env=env, capture_output=True, text=True, check=False
            )
            if "ready" in said.stdout:
                break
            time.sleep(0.01)
        index_s = time.perf_counter() - began
        times = {name: _timed([program, *flags], root, env) for name, (_, flags, _) in _QUERIES.items()}
    finally:
        _run([program, "--server", "stop"], root, env)
    return index_s, times


def predecessor() -> list[Row]:
    """sari 0.1.26 on a small tree, both ways it offers: over stdio, and its daemon's HTTP. Each has 40 s for an answer."""
    scratch = Path(tempfile.mkdtemp(prefix="sari-bench-old-"))
    root = trees.generated(scratch / "tree", 1000)
    program = str(_environment("bench-sari-0.1.26", "sari==0.1.26") / "sari")
    env = {**os.environ, "HOME": str(scratch), "SARI_WORKSPACE_ROOT": str(root)}
    try:
        return [_old_stdio(program, root, env), _old_http(program, root, env)]
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


_OLD_TIMEOUT_S = 40.0


def _old_row(way: str, first: float | None, times: list[float], otherwise: str) -> Row:
    what = f"sari 0.1.26, 1k files, {way}: rare literal"
    if first is None:
        return {"what": what, "value": f"no right answer in {_OLD_TIMEOUT_S:.0f} s", "unit": otherwise}
    return {"what": what, "value": statistics.median(times) * 1000, "unit": f"ms p50, the first after {first:.1f} s"}


def _old_stdio(program: str, root: Path, env: dict[str, str]) -> Row:
    process = subprocess.Popen(
        [program, "--transport", "stdio", "--format", "json"],
        cwd=root,
        env=env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    # It may not answer at all.
    watchdog = threading.Timer(_OLD_TIMEOUT_S + 20, process.kill)
    watchdog.start()
    client = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "b", "version": "1"}}
    call = {"name": "search", "arguments": {"query": "unique_000777_fn", "limit": 10}}
    times: list[float] = []
    first, otherwise = None, ""
    try:
        began = time.perf_counter()
        _ask(process, 1, "initialize", client)
        for number in range(2, 200):
            started = time.perf_counter()
            if "file_777.py" in _ask(process, number, "tools/call", call):
                first = first or time.perf_counter() - began
                times.append(time.perf_counter() - started)
            if len(times) == 5 or time.perf_counter() - began > _OLD_TIMEOUT_S:
                break
            time.sleep(0.05)
    except (OSError, ValueError) as error:
        otherwise = str(error)
    finally:
        watchdog.cancel()
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
    return _old_row("stdio", first, times, otherwise)


def _old_http(program: str, root: Path, env: dict[str, str]) -> Row:
    ports = [_free_port(), _free_port()]
    command = [program, "daemon", "start", "-d", "--daemon-port", str(ports[0]), "--http-port", str(ports[1])]
    said = subprocess.run(command, cwd=root, env=env, capture_output=True, text=True, check=False, timeout=60).stdout
    began = time.perf_counter()
    times: list[float] = []
    first, otherwise = None, ""
    try:
        while len(times) < 5 and time.perf_counter() - began < _OLD_TIMEOUT_S:
            started = time.perf_counter()
            with contextlib.suppress(OSError, http.client.HTTPException):
                if b"file_777.py" in _get(ports[1], "/search?q=unique_000777_fn&limit=10"):
                    first = first or time.perf_counter() - began
                    times.append(time.perf_counter() - started)
            time.sleep(0.05)
        with contextlib.suppress(OSError, http.client.HTTPException, ValueError, KeyError):
            status = json.loads(_get(ports[1], "/status"))
            otherwise = f"says index_ready {status['index_ready']} with {status['indexed_files']} files"
    finally:
        if pid := re.search(r"PID: (\d+)", said):
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid[1]), signal.SIGKILL)
    return _old_row("its daemon", first, times, otherwise)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


def _get(port: int, path: str) -> bytes:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", path)
        return connection.getresponse().read()
    finally:
        connection.close()


def _ask(process: subprocess.Popen[bytes], number: int, method: str, params: object) -> str:
    assert process.stdin is not None
    assert process.stdout is not None
    body = json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params}).encode()
    process.stdin.write(b"Content-Length: %d\r\n\r\n" % len(body) + body)
    process.stdin.flush()
    while line := process.stdout.readline():
        if line.lower().startswith(b"content-length:"):
            while process.stdout.readline().strip():
                pass
            answer = process.stdout.read(int(line.split(b":")[1])).decode()
            if json.loads(answer).get("id") == number:
                return answer
    raise ValueError("it ended")
