"""The engines of ADR 0320 on one tree of 100,000 files: sari's own trigrams beside SQLite's FTS5 trigram tokenizer.

Each in one process, one core, from the list of files to an index on disk that answers; then the candidates of a
selective literal, from that index alone. CPU seconds are given too: they hardly depend on what else the machine does.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from sari.index import build, ripgrep, trigram_query
from sari.index.segment import Segment
from testing.sari import trees

FILES = 100_000
_CHUNK = 8_192
_LITERAL = "return handler_770"
_RUNS = 50


def measure() -> list[dict[str, object]]:
    scratch = Path(tempfile.mkdtemp(prefix="sari-bench-engines-"))
    try:
        root = trees.generated(scratch / "tree", FILES)
        own, fts = (_apart(engine, root, scratch / engine) for engine in ("own", "fts5"))
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    rows: list[dict[str, object]] = []
    for what, unit in (
        ("first index", "s"), ("first index, CPU", "s"), ("index size", "MB"), ("peak memory", "MB"),
        ("candidates of a selective literal", "ms p50"), ("candidate files", "files"),
    ):  # fmt: skip
        peer = f"FTS5 {fts[what]:.2f}"
        rows.append({"what": what, "value": own[what], "unit": unit, "peer": peer, "ratio": own[what] / fts[what]})
    return rows


def _apart(engine: str, root: Path, target: Path) -> dict[str, float]:
    """In a process of its own, so that memory is that engine's."""
    target.mkdir()
    done = subprocess.run(
        [sys.executable, "-m", "bench.bench_sari_engines", engine, root, target],
        cwd=trees.REPOSITORY,
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)  # type: ignore[no-any-return]


def _own(root: Path, paths: list[bytes], target: Path) -> Callable[[], int]:
    targets = []
    for at in range(0, len(paths), _CHUNK):
        targets.append(target / f"{at}.seg")
        build.build_one(root, paths[at : at + _CHUNK], targets[-1], lambda: False)
    segments = [Segment(one) for one in targets]
    wanted = trigram_query.by_literal(_LITERAL)
    return lambda: sum(len(segment.having(wanted) or ()) for segment in segments)


def _fts5(root: Path, paths: list[bytes], target: Path) -> Callable[[], int]:
    db = sqlite3.connect(target / "fts.db", isolation_level=None)
    db.execute("PRAGMA journal_mode = OFF")
    db.execute("PRAGMA synchronous = OFF")
    db.execute("CREATE VIRTUAL TABLE t USING fts5(x, tokenize='trigram', content='', detail='none')")
    base = os.fsencode(root) + b"/"
    db.execute("BEGIN")
    for number, path in enumerate(paths):
        with open(base + path, "rb") as file:
            text = file.read().decode("utf-8", "replace")
        db.execute("INSERT INTO t(rowid, x) VALUES (?, ?)", (number, text))
    db.execute("COMMIT")
    grams = {_LITERAL[at : at + 3] for at in range(len(_LITERAL) - 2)}
    match = " AND ".join(f'"{gram}"' for gram in sorted(grams))
    return lambda: len(db.execute("SELECT rowid FROM t WHERE t MATCH ?", (match,)).fetchall())


def _main(engine: str, root: Path, target: Path) -> None:
    paths = sorted(ripgrep.files(root, ["./"]))
    wall, cpu = time.perf_counter(), time.process_time()
    candidates = (_own if engine == "own" else _fts5)(root, paths, target)
    result = {"first index": time.perf_counter() - wall, "first index, CPU": time.process_time() - cpu}
    times = []
    for _ in range(_RUNS):
        began = time.perf_counter()
        found = candidates()
        times.append(time.perf_counter() - began)
    result["candidates of a selective literal"] = statistics.median(times) * 1000
    result["candidate files"] = found
    result["index size"] = sum(file.stat().st_size for file in target.iterdir()) / 2**20
    result["peak memory"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps(result))


if __name__ == "__main__":
    _main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))
