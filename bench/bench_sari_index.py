"""sari's index beside ripgrep, ripgrepx and its predecessor, on generated trees of 1k, 10k and 100k files.

`SARI_BENCH_SIZES=1000,10000` chooses sizes. The peers are installed once, each in its own environment under `.parts`.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import venv
from pathlib import Path

from sari.index.ripgrep import PROGRAM
from testing import sari_trees

Row = dict[str, object]

_PARTS = sari_trees.REPOSITORY / ".parts"
# name → (arguments of `search`, flags and pattern for ripgrep and ripgrepx, selective)
_QUERIES: dict[str, tuple[dict[str, object], list[str], bool]] = {
    "rare literal": ({"query": "unique_000777_fn"}, ["-F", "unique_000777_fn"], True),
    "literal": ({"query": "return handler_770", "case": "sensitive"}, ["-F", "return handler_770"], True),
    "word": ({"query": "handler_78", "mode": "words"}, ["-w", "handler_78"], True),
    "regex": ({"query": r"def\s+unique_0007\d\d_fn", "mode": "regex"}, [r"def\s+unique_0007\d\d_fn"], True),
    "absent": ({"query": "zqxjkvzqnot"}, ["-F", "zqxjkvzqnot"], True),
    "frequent": ({"query": "return"}, ["-F", "return"], False),
}


def measure() -> list[Row]:
    sizes = [int(size) for size in os.environ.get("SARI_BENCH_SIZES", "1000,10000,100000").split(",")]
    rows: list[Row] = []
    for size in sizes:
        scratch = Path(tempfile.mkdtemp(prefix=f"sari-bench-{size}-"))
        try:
            rows += _one_size(scratch, size)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
    rows += _predecessor()
    return rows


def _one_size(scratch: Path, size: int) -> list[Row]:
    root = sari_trees.generated(scratch / "tree", size)
    by_ripgrep = {
        name: _runs([PROGRAM, "--no-config", "--hidden", *flags, "./"], root, 3)
        for name, (_, flags, _) in _QUERIES.items()
    }
    peer_index, by_peer = _ripgrepx(root, scratch / "rgx-cache")
    mine = _sari(root, scratch / "data", size)
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


def _query_rows(what: str, mine: dict, theirs: list[float], peers: list[float], floors: bool) -> list[Row]:  # type: ignore[type-arg]
    times = sorted(mine["times"])
    p50, p99 = statistics.median(times), times[min(len(times) - 1, int(len(times) * 0.99))]
    slow, peer = statistics.median(theirs), statistics.median(peers)
    return [
        {
            "what": f"{what} ({mine['total']} lines)",
            "value": p50 * 1000,
            "unit": f"ms p50 (p99 {p99 * 1000:.0f})",
            "peer": f"ripgrep {slow * 1000:.0f} ms",
            "ratio": slow / p50,
            "floor": "≥ 10" if floors else "",
        },
        {
            "what": what,
            "value": p50 * 1000,
            "unit": "ms p50",
            "peer": f"ripgrepx {peer * 1000:.0f} ms",
            "ratio": p50 / peer,
            "floor": "≤ 3" if floors else "",
        },
    ]


def _runs(command: list[str], root: Path, count: int, env: dict[str, str] | None = None) -> list[float]:
    times = []
    for _ in range(count):
        began = time.perf_counter()
        subprocess.run(
            command,
            cwd=root,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=env,
            check=False,
        )
        times.append(time.perf_counter() - began)
    return times


def _sari(root: Path, data: Path, size: int) -> dict:  # type: ignore[type-arg]
    runs = 20 if size <= 10_000 else 12
    asked = {name: (arguments, runs if selective else 3) for name, (arguments, _, selective) in _QUERIES.items()}
    done = subprocess.run(
        [sys.executable, "-m", "bench.sari_index_probe", root, data],
        cwd=sari_trees.REPOSITORY,
        input=json.dumps(asked),
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


def _ripgrepx(root: Path, cache: Path) -> tuple[float, dict[str, list[float]]]:
    program = str(_environment("bench-ripgrepx", "ripgrepx==0.4.0") / "rgx")
    env = {**os.environ, "RGX_CACHE_DIR": str(cache)}
    began = time.perf_counter()
    _runs([program, "--server", "start"], root, 1, env)
    try:
        while time.perf_counter() - began < 300:
            said = subprocess.run(
                [program, "--server", "status"], cwd=root, env=env, capture_output=True, text=True, check=False
            )
            if "ready" in said.stdout:
                break
            time.sleep(0.01)
        index_s = time.perf_counter() - began
        times = {name: _runs([program, *flags], root, 5, env) for name, (_, flags, _) in _QUERIES.items()}
    finally:
        _runs([program, "--server", "stop"], root, 1, env)
    return index_s, times


def _predecessor() -> list[Row]:
    """sari 0.1.26 over its own stdio, on a small tree: it keeps its database in the workspace and writes stray lines."""
    scratch = Path(tempfile.mkdtemp(prefix="sari-bench-old-"))
    root = sari_trees.generated(scratch / "tree", 1000)
    program = _environment("bench-sari-0.1.26", "sari==0.1.26") / "sari"
    env = {**os.environ, "HOME": str(scratch), "SARI_WORKSPACE_ROOT": str(root)}
    process = subprocess.Popen(
        [program, "--transport", "stdio", "--format", "json"],
        cwd=root,
        env=env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    watchdog = threading.Timer(60, process.kill)
    watchdog.start()
    try:
        began = time.perf_counter()
        _ask(
            process,
            1,
            "initialize",
            {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "b", "version": "1"}},
        )
        times: list[float] = []
        first = None
        for number in range(2, 200):
            asked = time.perf_counter()
            answer = _ask(
                process,
                number,
                "tools/call",
                {"name": "search", "arguments": {"query": "unique_000777_fn", "limit": 10}},
            )
            if "file_777.py" in answer:
                first = first or time.perf_counter() - began
                times.append(time.perf_counter() - asked)
            if len(times) == 5 or time.perf_counter() - began > 40:
                break
            time.sleep(0.05)
        if first is None:
            return [{"what": "sari 0.1.26, 1k files: first right answer", "value": "none in 40 s", "unit": ""}]
        return [
            {"what": "sari 0.1.26, 1k files: first right answer", "value": first, "unit": "s"},
            {
                "what": "sari 0.1.26, 1k files: rare literal",
                "value": statistics.median(times) * 1000,
                "unit": "ms p50",
            },
        ]
    except (OSError, ValueError) as error:
        return [{"what": "sari 0.1.26, 1k files", "value": f"failed: {error}", "unit": ""}]
    finally:
        watchdog.cancel()
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        shutil.rmtree(scratch, ignore_errors=True)


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
