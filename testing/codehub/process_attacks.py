"""A process workspace from which tests attack another workspace, this machine and CodeHub."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from codehub.adapters.process.cgroup import Limits
from codehub.adapters.process.instances import ProcessInstances
from codehub.adapters.process.launch_plan import ProcessOptions
from testing.codehub.contracts.instances import started as started_by_number
from testing.codehub.contracts.instances import wid as workspace_id
from testing.codehub.processes import ProcessWorld

# Not the numbers of other tests: the end of an instance is the end of every process of its uid, whoever started it.
FIRST = 4_001


def wid(number: int = 1) -> str:
    return workspace_id(FIRST - 1 + number)


async def started(world: ProcessWorld) -> None:
    await started_by_number(world, FIRST)


CONNECT = """import socket, sys
s = socket.socket(); s.settimeout(5)
try:
    s.connect((sys.argv[1], int(sys.argv[2]))); print("reached", s.recv(100).decode())
except OSError as error:
    print("refused", error)
"""


def limited(base: Path, *, memory: int = 4 << 30, pids: int = 2048, networks: tuple[str, ...] = ()) -> ProcessWorld:
    options = ProcessOptions(
        grace_s=5, hidden=(base,), limits=Limits(memory, 2.0, pids), allowed_networks=networks, log_bytes=200_000
    )
    return ProcessWorld(base, ProcessInstances(base / "run", options))


@contextlib.contextmanager
def greeting(host: str) -> Iterator[int]:
    """A service of this machine that greets whoever connects."""
    with socket.create_server((host, 0)) as server:
        code = "import socket, sys\ns = socket.socket(fileno=int(sys.argv[1]))\nwhile True: s.accept()[0].sendall(b'hello')"
        with subprocess.Popen(
            [sys.executable, "-c", code, str(server.fileno())], pass_fds=[server.fileno()]
        ) as child:
            try:
                yield server.getsockname()[1]
            finally:
                child.kill()


async def try_to_reach(world: ProcessWorld, host: str, port: int) -> str:
    return await world.ask(wid(), f"python3 -c '{CONNECT}' {host} {port}")
