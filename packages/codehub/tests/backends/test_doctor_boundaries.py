"""`codehub doctor` tries the boundaries in real sandboxes: whole ones, and ones that were weakened in one way each.

Each run is in a network and a mount namespace of its own, in which the test has put what a workspace must not reach.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from codehub.adapters.process.isolation import find_isolation
from testing.codehub.services import service_dir

pytestmark = [pytest.mark.xdist_group("ide"), pytest.mark.needs("bwrap", "slirp4netns", "root")]

NETWORK = {
    "reach the API",
    "reach the proxy",
    "reach this machine's loopback",
    "reach this machine's network address",
    "reach another workspace's ports",
    "reach another workspace's abstract sockets",
    "reach cloud metadata",
}
SERVERS = {"reach the database", "reach Valkey"}
REST = {
    "reach another workspace's IDE",
    "read another home",
    "read CodeHub's data directory",
    "make a user namespace",
    "start more processes than its limit",
    "take more memory than its limit",
}
# Listens as CodeHub's parts and a cloud's metadata service do, then becomes the command.
SERVE = """import os, socket, subprocess, sys
listening = [socket.create_server((host, port)) for host, port in (
    ("127.0.0.1", 8000), ("127.0.0.1", 8001), ("127.0.0.1", 5432), ("127.0.0.1", 6379), ("169.254.169.254", 80))]
if not os.fork():
    import selectors
    waiting = selectors.DefaultSelector()
    for each in listening: waiting.register(each, selectors.EVENT_READ)
    while os.getppid() != 1:
        for key, _ in waiting.select(1): key.fileobj.accept()[0].close()
    os._exit(0)
os.execvp(sys.argv[1], sys.argv[1:])
"""
SETUP = "ip link set lo up && ip addr add 169.254.169.254/32 dev lo && "


def command(before: str = "") -> list[str]:
    doctor = (
        f'exec {sys.executable} -c "$0" {sys.executable} -m codehub.cli.main doctor --json --boundaries-timeout 120'
    )
    return ["unshare", "-n", "-m", "--kill-child", "sh", "-c", SETUP + before + doctor, SERVE]


@pytest.fixture
def data_dir() -> Iterator[Path]:
    """A directory that a workspace without a sandbox can reach.

    pytest's own are below one that every other pytest of this machine closes to others when it starts.
    """
    place = service_dir()
    yield place
    shutil.rmtree(place)


def environment(data_dir: Path, **more: str) -> dict[str, str]:
    (data_dir / "run").mkdir(exist_ok=True)
    (data_dir / "secrets.key").write_text("secret")
    return {
        "PATH": os.environ["PATH"],
        "CODEHUB_DATA_DIR": str(data_dir),
        "CODEHUB_RUNTIME": "process",
        "CODEHUB_ISOLATION": "best-effort",
        **more,
    }


def doctor(data_dir: Path, before: str = "", **more: str) -> tuple[int, dict[str, dict[str, str]]]:
    done = subprocess.run(
        command(before), env=environment(data_dir, **more), capture_output=True, text=True, timeout=280, check=False
    )
    assert done.stdout, done.stderr
    findings = json.loads(done.stdout)
    assert not list((data_dir / "run").iterdir()), "nothing is left behind"
    return done.returncode, {one["boundary"]: one for one in findings if one["part"] == "boundary"}


def by_verdict(found: dict[str, dict[str, str]], verdict: str) -> set[str]:
    return {name for name, one in found.items() if one["verdict"] == verdict}


def without(program: str) -> str:
    """Takes a program away, in the mount namespace of the run."""
    found = shutil.which(program)
    assert found is not None
    return f"mount --bind /dev/null {Path(found).resolve()} && "


def python_for_everybody() -> str:
    """Without a sandbox the workspace's user must get to Python, which may be in a home that is closed to others."""
    prefix = Path(sys.base_prefix).resolve()
    closed = next((place for place in reversed(prefix.parents) if not place.stat().st_mode & 0o001), None)
    if closed is None:
        return ""
    return (
        f"mount --bind {prefix} /mnt && mount -t tmpfs -o mode=755 none {closed} && mkdir -p {prefix} && "
        f"mount --move /mnt {prefix} && "
    )


def groups(identity: str) -> list[Path]:
    """The control groups of one start."""
    cgroups = find_isolation().cgroups
    assert cgroups is not None
    return [top / identity for top in cgroups.tops if (top / identity).exists()]


def test_every_boundary_of_a_whole_sandbox_holds(data_dir: Path) -> None:
    code, found = doctor(data_dir)
    assert by_verdict(found, "held") == NETWORK | REST, found
    assert by_verdict(found, "could not be tried") == SERVERS
    assert all(found[name]["fix"] for name in SERVERS)
    assert code == 0


def test_without_a_network_of_its_own_exactly_the_network_is_not_held(data_dir: Path) -> None:
    code, found = doctor(
        data_dir,
        without("slirp4netns"),
        CODEHUB_DATABASE_URL="postgresql://nobody@127.0.0.1/none",
        CODEHUB_REDIS_URL="redis://127.0.0.1",
    )
    assert by_verdict(found, "NOT HELD") == NETWORK | SERVERS, found
    assert by_verdict(found, "held") == REST, found
    assert "connected to 169.254.169.254:80" in found["reach cloud metadata"]["message"]
    assert all("slirp4netns" in found[name]["fix"] for name in NETWORK)
    assert code == 1


def test_without_bubblewrap_files_and_system_calls_are_not_held(data_dir: Path) -> None:
    """What the workspace's own user keeps from others still holds."""
    code, found = doctor(data_dir, without("bwrap") + python_for_everybody())
    assert by_verdict(found, "NOT HELD") == {"read CodeHub's data directory", "make a user namespace"}, json.dumps(
        found
    )
    assert by_verdict(found, "held") == (NETWORK | REST) - by_verdict(found, "NOT HELD"), found
    assert code == 1


def test_without_control_groups_memory_is_not_held(data_dir: Path) -> None:
    code, found = doctor(data_dir, before="mount -t tmpfs none /sys/fs/cgroup && ")
    assert by_verdict(found, "NOT HELD") == {"take more memory than its limit"}, found
    assert code == 1


def test_a_sandbox_that_is_required_and_missing_is_not_replaced_by_a_weaker_one(data_dir: Path) -> None:
    _, found = doctor(data_dir, without("bwrap"), CODEHUB_ISOLATION="required")
    assert list(found) == ["all"]
    assert found["all"]["verdict"] == "could not be tried"
    assert "CODEHUB_ISOLATION=required" in found["all"]["message"]


@pytest.mark.parametrize(
    ("runtime", "said"), [("docker", "engine does not answer"), ("kubernetes", "no cluster is configured")]
)
def test_what_is_not_tried_is_said(data_dir: Path, runtime: str, said: str) -> None:
    _, found = doctor(data_dir, CODEHUB_RUNTIME=runtime, DOCKER_HOST=f"unix://{data_dir}/none.sock")
    assert found["all"]["verdict"] == "could not be tried"
    assert said in found["all"]["message"]


def _runs(pid: int) -> bool:
    """Whether it runs; one that ended may wait for init to collect it."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_a_killed_doctor_leaves_nothing_once_the_next_one_ran(data_dir: Path) -> None:
    settings = environment(data_dir)
    words = [sys.executable, "-m", "codehub.cli.main", "doctor"]
    killed = subprocess.Popen(words, env=settings, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    run = data_dir / "run"
    until(lambda: bool(list(run.glob("doctor-*/run/doctor-*/record.json"))), "a probe was started")
    records = [json.loads(file.read_text()) for file in run.glob("doctor-*/run/*/record.json")]
    supervisors = [record["pid"] for record in records]
    os.kill(killed.pid, signal.SIGKILL)
    killed.wait()
    assert list(run.iterdir())
    assert all(groups(record["identity"]) for record in records)
    doctor(data_dir)
    until(lambda: not any(_runs(pid) for pid in supervisors), "the probes have ended")
    assert not any(groups(record["identity"]) for record in records)


def until(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline, what
        time.sleep(0.01)
