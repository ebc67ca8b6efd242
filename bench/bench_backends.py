"""Archive and restore of a realistic 1 GB home beside `tar | zstd -3 -T0` to the same store: a directory, and SeaweedFS.

Two times each. "Copied": until the last byte is handed to the store or to the file system, on both sides. "Done": until
each may say so: the peer after a `sync`, ours after that and after the whole archive was read back and compared, or the
restored home put in its place. Ours also hashes, and keeps nanoseconds, xattrs and holes; the peer does not.

Fair: in turns, changing who goes first; the median of several rounds; what is read is in memory, what was written before is
on the disk. As root every restore goes to a file system made for it: on one in use ext4 does not reuse an inode for some
minutes after its removal and searches past it, which makes whoever comes next up to five times slower.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path

from codehub.adapters.homes.local_dir import LocalDirHomes
from codehub.adapters.objectstore.store import Store
from codehub.domain.model import HomeCtx
from codehub.ports.fence import ignore_progress, no_fence
from codehub.ports.homes import HomeKey
from testing.codehub.objectstore import S3Server, running_s3_server

_MB = 1 << 20
_Work = Callable[[int], tuple[float, float]]  # a round's number → seconds until copied, and until done
_ROUNDS = 5
_DISK_BYTES = 4 << 30  # for one restored home
# The peer's end of the pipe to and from S3: the same client library, part size and concurrency as ours. It is there before
# the clock starts, as ours is.
_ENDS = """
import json, sys
from codehub.adapters.objectstore.store import Store, StoreOptions
do, url, options, key, pipe = sys.argv[1:]
store = Store(url, StoreOptions(**json.loads(options)))
print("ready", flush=True)
if do == "put":
    with open(pipe, "rb", buffering=0) as file:
        store.put_stream(key, iter(lambda: file.read(1 << 20), b""))
else:
    with open(pipe, "wb", buffering=0) as file:
        for chunk in store.stream(key):
            file.write(chunk)
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


@dataclass(slots=True)
class _Taken:
    """Seconds, round by round."""

    whose: str
    copied: list[float] = field(default_factory=list)
    done: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class _Case:
    """One store, and how the peer writes to and reads from it: shell commands, and what must run beside them."""

    name: str
    store: Store
    put: Callable[[int], str]
    put_sync: Callable[[int], str]
    get: Callable[[int], str]
    end: Callable[[str, int], subprocess.Popen[str] | None] = lambda do, number: None


def measure() -> list[dict[str, object]]:
    base = Path(tempfile.mkdtemp(prefix="chbench-", dir="/var/tmp"))
    try:
        with running_s3_server(Path(tempfile.mkdtemp(dir=base))) as server, _disk(base) as disk:
            return _measured(base, [_files(base), _s3(base, server)], disk)
    finally:
        shutil.rmtree(base, ignore_errors=True)


def _files(base: Path) -> _Case:
    return _Case(
        "directory",
        Store((base / "archives").as_uri()),
        lambda number: f"zstd -q -3 -T0 -f -o {base}/peer-{number}.tar.zst",
        lambda number: f"sync {base}/peer-{number}.tar.zst",
        lambda number: f"zstd -q -dc {base}/peer-{number}.tar.zst",
    )


def _s3(base: Path, server: S3Server) -> _Case:
    store = server.fresh()
    pipe = base / "pipe"
    os.mkfifo(pipe)

    def end(do: str, number: int) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", _ENDS, do, store.url, server.options_json(), f"peer/{number}", str(pipe)]
        started = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert started.stdout is not None
        assert started.stdout.readline() == "ready\n"
        return started

    return _Case(
        "SeaweedFS",
        store,
        lambda number: f"zstd -q -3 -T0 -c > {pipe}",
        lambda number: "true",  # it has answered, as it has to ours
        lambda number: f"zstd -q -dc < {pipe}",
        end,
    )


@contextlib.contextmanager
def _disk(base: Path) -> Iterator[Callable[[], Path]]:
    """An empty directory to restore into: a new file system's each time, where we may make one."""
    image, place = base / "disk", base / "mnt"
    place.mkdir()
    if os.geteuid() != 0:
        print("  not root: restores go to a file system in use, whose state they depend on", file=sys.stderr)
        yield lambda: Path(tempfile.mkdtemp(dir=place))
        return
    with open(image, "wb") as file:
        os.posix_fallocate(file.fileno(), 0, _DISK_BYTES)
    device = subprocess.check_output(["losetup", "--show", "-f", "--direct-io=on", image], text=True).strip()

    def fresh() -> Path:
        subprocess.run(["umount", place], check=False, capture_output=True)
        options = "lazy_itable_init=0,lazy_journal_init=0,nodiscard"
        subprocess.run(["mkfs.ext4", "-q", "-F", "-E", options, device], check=True)
        subprocess.run(["mount", device, place], check=True)
        return place

    try:
        yield fresh
    finally:
        subprocess.run(["umount", place], check=False, capture_output=True)
        subprocess.run(["losetup", "-d", device], check=False, capture_output=True)


def _measured(base: Path, cases: list[_Case], disk: Callable[[], Path]) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    key = HomeKey("bench", "users/bench/workspaces/bench/home")
    root = base / "homes"
    first = LocalDirHomes(root, cases[0].store)
    ctx = asyncio.run(first.provision(key, "inc-0", no_fence))
    files = Path(first.mount(key).source)
    make_home(files)
    size = sum(path.stat().st_size for path in files.rglob("*") if path.is_file())
    for case in cases:
        rows += _archives(case, root, key, ctx, size)
        rows += _restores(case, disk, size)
    # In a process that does nothing else: this one's mark is that of making the home and of the store's own client too.
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as alone:
        memory = alone.submit(_peak_mb, root, cases[0].store.url, key, ctx).result()
        back = alone.submit(_restored_peak_mb, disk(), cases[0].store.url, "bench/op-0/home.tar.zst").result()
    return [
        *rows,
        {
            "what": "memory of a process that archives, at most",
            "value": round(memory),
            "unit": "MB",
            "floor": "≤ 200",
        },
        {"what": "and then restores", "value": round(back), "unit": "MB", "floor": "≤ 200"},
    ]


def _archives(case: _Case, root: Path, key: HomeKey, ctx: HomeCtx, size: int) -> list[dict[str, object]]:
    files = LocalDirHomes(root, case.store).mount(key).source
    ours, peer = _rounds(
        lambda number: _archive(root, case.store, key, ctx, f"op-{number}"),
        lambda number: _shell(
            f"tar -C {files} -c . | {case.put(number)}", case.put_sync(number), case.end("put", number)
        ),
    )
    return _rows(f"archive of {size // _MB} MB to a {case.name}", "on the disk and read back", size, ours, peer)


def _restores(case: _Case, disk: Callable[[], Path], size: int) -> list[dict[str, object]]:
    ours, peer = _rounds(
        lambda number: _restore(disk(), case.store, f"bench/op-{number}/home.tar.zst"),
        lambda number: _unpack(disk(), case.get(number), case.end("get", number)),
    )
    return _rows(f"restore of {size // _MB} MB from a {case.name}", "on the disk", size, ours, peer)


def _archive(root: Path, store: Store, key: HomeKey, ctx: HomeCtx, op: str) -> tuple[float, float]:
    clock = _Clock("archive:after-data")
    homes = LocalDirHomes(root, store, at=clock.at)
    asyncio.run(homes.archive(key, ctx, op, ignore_progress, no_fence))
    return clock.ended()


def _restore(root: Path, store: Store, source: str) -> tuple[float, float]:
    copy = HomeKey("copy", "users/bench/workspaces/copy/home")
    os.sync()
    clock = _Clock("restore:unpacked")
    homes = LocalDirHomes(root, store, at=clock.at)
    asyncio.run(homes.restore(copy, source, "inc-1", ignore_progress, no_fence))
    return clock.ended()


def _unpack(place: Path, stream: str, end: subprocess.Popen[str] | None) -> tuple[float, float]:
    (place / "home").mkdir()
    os.sync()
    return _shell(f"{stream} | tar -C {place}/home -x", f"sync -f {place}/home", end)


class _Clock:
    """Until a named point, and until the end."""

    def __init__(self, point: str) -> None:
        self._point = point
        self._copied = 0.0
        self._began = time.perf_counter()

    def at(self, point: str) -> None:
        if point == self._point:
            self._copied = time.perf_counter() - self._began

    def ended(self) -> tuple[float, float]:
        return self._copied, time.perf_counter() - self._began


def _shell(copy: str, sync: str, end: subprocess.Popen[str] | None) -> tuple[float, float]:
    clock = _Clock("copied")
    subprocess.run(["bash", "-c", f"set -o pipefail; {copy}"], check=True)
    if end is not None:
        assert end.wait() == 0
    clock.at("copied")
    subprocess.run(["bash", "-c", sync], check=True)
    return clock.ended()


def _rounds(ours: _Work, peer: _Work) -> tuple[_Taken, _Taken]:
    """Who goes first changes with every round: the disk and its caches favour one place or the other."""
    taken = (_Taken("ours"), _Taken("peer"))
    pair = [(ours, taken[0]), (peer, taken[1])]
    for number in range(-1, _ROUNDS):  # the first one is for the caches
        for work, kept in pair if number % 2 else reversed(pair):
            os.sync()
            copied, done = work(number)
            print(f"  {kept.whose}: {copied:.2f} s, {done:.2f} s", file=sys.stderr, flush=True)
            if number >= 0:
                kept.copied.append(copied)
                kept.done.append(done)
    return taken


def _rows(what: str, done: str, size: int, ours: _Taken, peer: _Taken) -> list[dict[str, object]]:
    return [
        _row(f"{what}, copied", size, ours.copied, peer.copied),
        _row(f"{what}, {done}", size, ours.done, peer.done),
    ]


def _row(what: str, size: int, ours: list[float], peer: list[float]) -> dict[str, object]:
    mine, theirs = (size / statistics.median(taken) / _MB for taken in (ours, peer))
    return {
        "what": what,
        "value": round(mine, 1),
        "unit": "MB/s",
        "peer": f"tar|zstd -3 -T0: {theirs:.1f}",
        "ratio": round(mine / theirs, 2),
        "floor": 0.9,
    }


def _peak_mb(root: Path, url: str, key: HomeKey, ctx: HomeCtx) -> float:
    asyncio.run(LocalDirHomes(root, Store(url)).archive(key, ctx, "op-peak", ignore_progress, no_fence))
    return _high_water_mb()


def _restored_peak_mb(root: Path, url: str, source: str) -> float:
    _restore(root, Store(url), source)
    return _high_water_mb()


def _high_water_mb() -> float:
    # Not ru_maxrss: a new program's begins with the mark of the process that started it.
    status = Path("/proc/self/status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM:"))) / 1024
