"""Archive and restore of a realistic 1 GB home beside `tar | zstd -3 -T0` to the same store: a directory, and SeaweedFS.

Both sides end with the bytes on the disk (`sync`), and neither is measured right after somebody removed many files: ext4
does not reuse fresh inodes for a while and searches past them, which makes whoever comes next up to five times slower. So
nothing is removed before the end. Ours also hashes, reads the whole archive back and compares before it says done, keeps
nanoseconds, xattrs and holes; the peer does none of that.
"""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path

from codehub.adapters.homes.local_dir import LocalDirHomes
from codehub.adapters.objectstore.store import Store
from codehub.domain.model import HomeCtx
from codehub.ports.fence import ignore_progress, no_fence
from codehub.ports.homes import HomeKey
from testing.objectstore import S3Server, running_s3_server

_MB = 1 << 20
_Pair = tuple[Callable[[], object], Callable[[], object]]  # ours, the peer's
_ROUNDS = 2  # a round is some ten gigabytes of work; more would not fit eight minutes
# The peer's end of the pipe to S3: the same client library, part size and concurrency as ours.
_PUT = """
import json, sys
from codehub.adapters.objectstore.store import Store, StoreOptions
store = Store(sys.argv[1], StoreOptions(**json.loads(sys.argv[2])))
chunks = iter(lambda: sys.stdin.buffer.read(1 << 20), b"")
store.put_stream(sys.argv[3], chunks)
"""
_GET = """
import json, sys
from codehub.adapters.objectstore.store import Store, StoreOptions
store = Store(sys.argv[1], StoreOptions(**json.loads(sys.argv[2])))
for chunk in store.stream(sys.argv[3]):
    sys.stdout.buffer.write(chunk)
"""


def make_home(root: Path, size: int = 1000 * _MB) -> None:
    """Many small text files, some large compressible ones, a fifth that does not compress."""
    rng = random.Random(3)
    words = [rng.randbytes(rng.randrange(2, 9)).hex() for _ in range(4_000)]
    written = 0
    number = 0
    while written < size * 4 // 10:
        folder = root / f"src/{number // 600:03d}/{number // 20 % 30}"
        folder.mkdir(parents=True, exist_ok=True)
        text = " ".join(rng.choices(words, k=rng.randrange(100, 3_000))).encode()
        (folder / f"file{number}.txt").write_bytes(text)
        written += len(text)
        number += 1
    block = " ".join(rng.choices(words, k=200_000)).encode()
    while written < size * 8 // 10:
        with open(root / f"large{number}.log", "wb") as file:
            for _ in range(20):
                file.write(block)
                written += len(block)
        number += 1
    while written < size:
        (root / f"random{number}.bin").write_bytes(rng.randbytes(20 * _MB))
        written += 20 * _MB
        number += 1


@dataclass
class _Times:
    ours: list[float] = field(default_factory=list)
    peer: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class _Case:
    """One store, and how the peer writes to and reads from it."""

    name: str
    store: Store
    put: Callable[[int], str]
    get: Callable[[int], str]


def measure() -> list[dict[str, object]]:
    base = Path(tempfile.mkdtemp(prefix="chbench-", dir="/var/tmp"))
    try:
        with running_s3_server(Path(tempfile.mkdtemp(dir=base))) as server:
            return _measured(base, [_files(base), _s3(server)])
    finally:
        shutil.rmtree(base, ignore_errors=True)


def _files(base: Path) -> _Case:
    def put(number: int) -> str:
        return f"zstd -q -3 -T0 -f -o {base}/peer-{number}.tar.zst && sync {base}/peer-{number}.tar.zst"

    return _Case(
        "directory", Store((base / "archives").as_uri()), put, lambda n: f"zstd -q -dc {base}/peer-{n}.tar.zst"
    )


def _s3(server: S3Server) -> _Case:
    store = server.fresh()
    options = server.options_json()

    def piped(script: str, number: int) -> str:
        return f"{sys.executable} -c '{script}' {store.url} '{options}' peer/{number}"

    return _Case(
        "SeaweedFS",
        store,
        lambda number: f"zstd -q -3 -T0 -c | {piped(_PUT, number)}",
        lambda number: f"{piped(_GET, number)} | zstd -q -dc",
    )


def _measured(base: Path, cases: list[_Case]) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    key = HomeKey("bench", "users/bench/workspaces/bench/home")
    root = base / "homes"
    first = LocalDirHomes(root, cases[0].store)
    ctx = asyncio.run(first.provision(key, "inc-0", no_fence))
    files = Path(first.mount(key).source)
    make_home(files)
    size = sum(path.stat().st_size for path in files.rglob("*") if path.is_file())
    os.sync()
    for case in cases:
        homes = LocalDirHomes(root, case.store)
        archive, restore = _Times(), _Times()
        for number in range(_ROUNDS):
            _both(number, archive, *_archivers(homes, key, ctx, case, number))
        for number in range(_ROUNDS):
            _both(number, restore, *_restorers(homes, base, case, number))
        rows += [_row(f"archive of {size // _MB} MB to a {case.name}, read back", size, archive)]
        rows += [_row(f"restore of {size // _MB} MB from a {case.name}, digest checked", size, restore)]
    # In a process that does nothing else: this one's mark is that of making the home and of the store's own client too.
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as alone:
        memory = alone.submit(_peak_mb, root, cases[0].store.url, key, ctx).result()
    return [
        *rows,
        {
            "what": "high-water mark of a process that archives",
            "value": round(memory),
            "unit": "MB",
            "floor": "≤ 200",
        },
    ]


def _peak_mb(root: Path, url: str, key: HomeKey, ctx: HomeCtx) -> float:
    asyncio.run(LocalDirHomes(root, Store(url)).archive(key, ctx, "op-peak", ignore_progress, no_fence))
    # Not ru_maxrss: a new program's begins with the mark of the process that started it.
    status = Path("/proc/self/status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM:"))) / 1024


def _archivers(homes: LocalDirHomes, key: HomeKey, ctx: HomeCtx, case: _Case, number: int) -> _Pair:
    files = homes.mount(key).source
    return (
        lambda: asyncio.run(homes.archive(key, ctx, f"op-{number}", ignore_progress, no_fence)),
        lambda: _shell(f"tar -C {files} -c . | {case.put(number)}"),
    )


def _restorers(homes: LocalDirHomes, base: Path, case: _Case, number: int) -> _Pair:
    out = base / f"out-{case.name}-{number}"
    out.mkdir()
    copy = HomeKey(f"copy{number}", f"users/{case.name}/workspaces/copy{number}/home")
    source = f"bench/op-{number}/home.tar.zst"
    return (
        lambda: asyncio.run(homes.restore(copy, source, "inc-1", ignore_progress, no_fence)),
        lambda: _shell(f"{case.get(number)} | tar -C {out} -x && sync -f {out}"),
    )


def _both(number: int, times: _Times, ours: Callable[[], object], peer: Callable[[], object]) -> None:
    """Who goes first changes with every round: the disk and its caches favour one place or the other."""
    pair = [(ours, times.ours), (peer, times.peer)]
    for work, kept in pair if number % 2 else reversed(pair):
        began = time.perf_counter()
        work()
        kept.append(time.perf_counter() - began)
        print(f"  {'ours' if kept is times.ours else 'peer'}: {kept[-1]:.1f} s", file=sys.stderr, flush=True)


def _row(what: str, size: int, times: _Times) -> dict[str, object]:
    mine, theirs = size / min(times.ours) / _MB, size / min(times.peer) / _MB
    return {
        "what": what,
        "value": round(mine, 1),
        "unit": "MB/s",
        "peer": f"tar|zstd -3 -T0: {theirs:.1f}",
        "ratio": round(mine / theirs, 2),
        "floor": 0.9,
    }


def _shell(command: str) -> None:
    subprocess.run(["bash", "-c", f"set -o pipefail; {command}"], check=True)
