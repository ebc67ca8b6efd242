"""How soon a workspace answers: as a process, and as a container beside a bare `docker run` of the same image.

"First page" is the first good answer of the IDE itself: through API, control plane and proxy on our side, from the
published port on the peer's. The tests' tiny image starts in a moment, so that what we add shows; code-server is the tests'
image of the real one. With `BENCH_DOCKER_DIR=DIR`, an engine that listens on DIR/docker.sock is used instead of a new one.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import statistics
import subprocess
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx

from codehub.adapters.process.instances import ProcessInstances
from codehub.adapters.process.launch_plan import ProcessOptions
from codehub.ports.fence import ignore_progress, no_fence
from codehub.ports.instances import InstanceSpec, Mount, MountKind
from testing.codehub.container_walkthrough import tiny_profiles
from testing.codehub.docker import TINY_IMAGE, DockerEngine
from testing.codehub.docker_ide import CODE_SERVER_IMAGE, load_code_server_image
from testing.codehub.full_stack import Stack, fresh_stack
from testing.codehub.tiny_ide import by_socket
from testing.ports import free_ports

_ROUNDS = 7
_MANY = 50
_TIMEOUT_S = 300
# Between two looks for the first page: often for one start; as a waiting page would for many, or looking would be the work.
_POLL_INTERVAL_S = 0.02
_POLL_INTERVAL_OF_MANY_S = 0.5
_NETWORK = "bench"


def measure() -> list[dict[str, object]]:
    base = Path(tempfile.mkdtemp(prefix="chbench-", dir="/var/tmp"))
    given = os.environ.get("BENCH_DOCKER_DIR")
    try:
        rows = asyncio.run(_processes(base))
        with _engine(Path(given) if given else None) as engine:
            load_code_server_image(engine)
            for profile, image in (("tiny", TINY_IMAGE), ("code-server", CODE_SERVER_IMAGE)):
                rows += _containers(engine, base, profile, image)
        return rows
    finally:
        shutil.rmtree(base, ignore_errors=True)


@contextlib.contextmanager
def _engine(given: Path | None) -> Iterator[DockerEngine]:
    engine = DockerEngine(given or Path(tempfile.mkdtemp(prefix="chdocker-", dir="/var/tmp")))
    try:
        if given is None:
            engine.start()
        engine.load_tiny_image()
        yield engine
    finally:
        engine.stop() if given is None else engine.remove_everything()


async def _processes(base: Path) -> list[dict[str, object]]:
    instances = ProcessInstances(base / "run", ProcessOptions(grace_s=2, hidden=(base,)))
    os.chmod(base, 0o711)

    async def start(number: int) -> None:
        home = base / f"h{number}"
        home.mkdir()
        spec = InstanceSpec(f"w{number}", "tiny", by_socket(), Mount(MountKind.DIR, str(home)))
        await instances.start(spec, ignore_progress, no_fence)
        async with asyncio.timeout(_TIMEOUT_S):
            while not await instances.probe(spec.workspace_id, spec.profile):
                await asyncio.sleep(0.01)

    try:
        began = time.perf_counter()
        await start(0)
        one = time.perf_counter() - began
        began = time.perf_counter()
        await asyncio.gather(*(start(number) for number in range(1, _MANY + 1)))
        many = time.perf_counter() - began
    finally:
        for workspace_id in await instances.list_all():
            await instances.delete(workspace_id, no_fence)
    return [
        {"what": "process start → first answer", "value": round(one * 1000), "unit": "ms"},
        {"what": f"{_MANY} process starts at once, until all answer", "value": round(many, 2), "unit": "s"},
    ]


def _containers(engine: DockerEngine, base: Path, profile: str, image: str) -> list[dict[str, object]]:
    with engine.client() as client:
        client.post("http://docker/networks/create", json={"Name": _NETWORK, "Driver": "bridge"})
    with fresh_stack() as stack:
        stack.environment |= tiny_profiles(base) | {
            "CODEHUB_RUNTIME": "docker",
            "DOCKER_HOST": engine.host,
            "LIMITS_MAX_RUNNING_PER_USER": "1000",
            "LIMITS_MAX_RUNNING_GLOBAL": "1000",
        }
        stack.up()
        with stack.client() as client:
            ours = _Ours(stack, client, profile)
            peer = _Peer(engine, base, image)
            ours.start()
            peer.start()  # both once unmeasured: images unpacked, caches warm
            times = [(ours.start(), peer.start()) for _ in range(_ROUNDS)]
            rows = [_row(f"create → first page, {profile}", *zip(*times, strict=True))]
            if profile == "tiny":
                rows.append(_many(ours.start, peer.start))
    engine.remove_everything()
    return rows


def _row(what: str, ours: tuple[float, ...], peer: tuple[float, ...]) -> dict[str, object]:
    mine, theirs = statistics.median(ours), statistics.median(peer)
    return {
        "what": what,
        "value": round(mine * 1000),
        "unit": "ms",
        "peer": f"docker run: {theirs * 1000:.0f}",
        "ratio": round(mine / theirs, 2),
        "floor": "≤ 1.15",
    }


def _many(ours: Callable[[float], float], peer: Callable[[float], float]) -> dict[str, object]:
    taken = []
    for start in (ours, peer):
        began = time.perf_counter()
        with ThreadPoolExecutor(_MANY) as pool:
            list(pool.map(lambda _, start=start: start(_POLL_INTERVAL_OF_MANY_S), range(_MANY)))
        taken.append(time.perf_counter() - began)
    return {
        "what": f"{_MANY} creates at once, until all answer",
        "value": round(taken[0], 2),
        "unit": "s",
        "peer": f"docker run: {taken[1]:.2f}",
        "ratio": round(taken[0] / taken[1], 2),
    }


class _Ours:
    def __init__(self, stack: Stack, client: httpx.Client, profile: str) -> None:
        self._client = client
        self._profile = profile
        self._port = stack.value("CODEHUB_PROXY_BIND").rpartition(":")[2]
        self._token = client.post("/api/v1/tokens", json={"name": "bench"}).json()["token"]

    def start(self, look_s: float = _POLL_INTERVAL_S) -> float:
        headers = {"Authorization": f"Bearer {self._token}", "Host": f"localhost:{self._port}"}
        with httpx.Client(timeout=60, trust_env=False, headers=headers) as proxy:
            began = time.perf_counter()
            body = {"name": f"b{uuid.uuid4().hex[:8]}", "image_ref": self._profile}
            made = self._client.post("/api/v1/workspaces", json=body)
            assert made.status_code == 201, made.text
            _until_good(proxy, f"http://127.0.0.1:{self._port}/w/{made.json()['id']}/healthz", look_s)
            return time.perf_counter() - began


class _Peer:
    def __init__(self, engine: DockerEngine, base: Path, image: str) -> None:
        self._engine = engine
        self._base = base
        self._image = image
        # All at once: two threads that look for a free port each may find the same.
        self._ports = iter(free_ports(1 + _ROUNDS + _MANY))

    def start(self, look_s: float = _POLL_INTERVAL_S) -> float:
        port = next(self._ports)
        home = Path(tempfile.mkdtemp(dir=self._base))
        os.chown(home, 1000, 1000)
        command = [
            "docker", "run", "-d", "--init", "--cap-drop", "ALL", "--security-opt", "no-new-privileges", "--memory", "4g",
            "--cpus", "2", "--pids-limit", "2048", "--user", "1000:1000", "--network", _NETWORK, "-e", "HOME=/home/coder",
            "-e", "CODEHUB_WORKSPACE_ID=x", "-p", f"127.0.0.1:{port}:8080", "-v", f"{home}:/home/coder", self._image,
        ]  # fmt: skip
        with httpx.Client(timeout=60, trust_env=False) as client:
            began = time.perf_counter()
            subprocess.run(
                command, env={**os.environ, "DOCKER_HOST": self._engine.host}, check=True, stdout=subprocess.DEVNULL
            )
            _until_good(client, f"http://127.0.0.1:{port}/healthz", look_s)
            return time.perf_counter() - began


def _until_good(client: httpx.Client, url: str, look_s: float) -> None:
    """Asked again and again, as a waiting page does; the same on both sides."""
    deadline = time.monotonic() + _TIMEOUT_S
    while time.monotonic() < deadline:
        with contextlib.suppress(httpx.TransportError):
            answer = client.get(url, headers={"Accept": "application/json"})
            if answer.status_code == 200:
                return
        time.sleep(look_s)
    raise TimeoutError(url)
