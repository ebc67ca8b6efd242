"""Archive and restore of a realistic 1 GB home beside `tar | zstd -3 -T0` to the same store, and starts of instances."""

from __future__ import annotations

import asyncio
import os
import random
import resource
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

from codehub.adapters.homes.local_dir import LocalDirHomes
from codehub.adapters.objectstore.store import Store
from codehub.adapters.process.instances import ProcessInstances, ProcessOptions
from codehub.ports.fence import ignore_progress, no_fence
from codehub.ports.homes import HomeKey
from codehub.ports.instances import InstanceSpec, Mount
from testing.tiny_ide import by_socket

_MB = 1 << 20
_ROUNDS = 3


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


def measure() -> list[dict[str, object]]:
    base = Path(tempfile.mkdtemp(prefix="chbench-", dir="/var/tmp"))
    try:
        return [*_archive(base), *asyncio.run(_starts(base))]
    finally:
        shutil.rmtree(base, ignore_errors=True)


def _archive(base: Path) -> list[dict[str, object]]:
    homes = LocalDirHomes(base / "homes", Store((base / "archives").as_uri()))
    home = HomeKey("bench", "users/bench/workspaces/bench/home")
    ctx = asyncio.run(homes.provision(home, "inc-0", no_fence))
    files = Path(homes.mount(home).source)
    make_home(files)
    size = sum(p.stat().st_size for p in files.rglob("*") if p.is_file())
    ours_in: list[float] = []
    peers_in: list[float] = []
    ours_out: list[float] = []
    peers_out: list[float] = []
    for number in range(_ROUNDS):
        peer_file = base / "peer.tar.zst"
        peers_in.append(_timed_shell(f"tar -C {files} -c . | zstd -q -3 -T0 -f -o {peer_file} && sync {peer_file}"))
        began = time.perf_counter()
        receipt = asyncio.run(homes.archive(home, ctx, f"op-{number}", ignore_progress, no_fence))
        ours_in.append(time.perf_counter() - began)
        out = base / "peer-out"
        out.mkdir()
        peers_out.append(_timed_shell(f"zstd -q -dc {peer_file} | tar -C {out} -x"))
        shutil.rmtree(out)
        asyncio.run(homes.deprovision(home, ctx, no_fence))
        began = time.perf_counter()
        ctx = asyncio.run(homes.restore(home, receipt.archive_key, f"inc-{number + 1}", ignore_progress, no_fence))
        ours_out.append(time.perf_counter() - began)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    rows: list[dict[str, object]] = []
    for what, ours, peers in (("archive", ours_in, peers_in), ("restore", ours_out, peers_out)):
        mine, theirs = size / min(ours) / _MB, size / min(peers) / _MB
        rows.append(
            {
                "what": f"{what} of {size // _MB} MB, file store, verified",
                "value": round(mine, 1),
                "unit": "MB/s",
                "peer": f"tar|zstd -3 -T0: {theirs:.1f}",
                "ratio": round(mine / theirs, 2),
                "floor": 0.9,
            }
        )
    return [*rows, {"what": "high-water mark of the process", "value": round(memory, 1), "unit": "MB"}]


def _timed_shell(command: str) -> float:
    began = time.perf_counter()
    subprocess.run(["bash", "-c", f"set -o pipefail; {command}"], check=True)
    return time.perf_counter() - began


async def _starts(base: Path) -> list[dict[str, object]]:
    instances = ProcessInstances(base / "run", ProcessOptions(grace_s=2, hidden=(base,)))
    os.chmod(base, 0o711)

    async def start(number: int) -> None:
        home = base / f"h{number}"
        home.mkdir()
        spec = InstanceSpec(f"w{number}", "tiny", by_socket(), Mount("dir", str(home)))
        await instances.start(spec, ignore_progress, no_fence)
        async with asyncio.timeout(300):
            while not await instances.probe(spec.workspace_id, spec.profile):
                await asyncio.sleep(0.01)

    try:
        began = time.perf_counter()
        await start(0)
        one = time.perf_counter() - began
        began = time.perf_counter()
        await asyncio.gather(*(start(number) for number in range(1, 51)))
        fifty = time.perf_counter() - began
    finally:
        for workspace_id in await instances.list_all():
            await instances.delete(workspace_id, no_fence)
    return [
        {"what": "process start → first answer", "value": round(one * 1000), "unit": "ms"},
        {"what": "50 process starts at once, until all answer", "value": round(fifty, 2), "unit": "s"},
    ]
