"""The registry damaged in every way: a clear message, nothing hangs, nothing lost."""

import contextlib
import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from testing.sari.processes import kill, wait_until
from testing.sari.shim import found_paths
from testing.sari.world import World


def _answers(world: World, name: str = "project") -> None:
    root = world.base / name
    shim = world.shim(root if root.exists() else world.workspace(name))
    shim.initialize()
    assert found_paths(shim.call("search", {"query": "needle"})) == ["hello.txt"]


def _error(world: World) -> str:
    """What a client reads when no daemon can be had."""
    shim = world.shim(world.workspace(f"broken{len(world.shims)}"))
    answer = shim.answer(shim.ask_tool("search", {"query": "needle"}))
    message = answer["error"]["message"]  # type: ignore[index]
    assert isinstance(message, str)
    return message


@pytest.mark.parametrize(
    "damage",
    [b"", b"{", b"[]", b'{"version": "2.0"}', b"\xff\xfe\x00", b'{"version":"2.0","daemons":[],"workspaces":3}'],
    ids=["empty", "cut", "array", "half", "binary", "types"],
)
def test_a_damaged_registry_is_rebuilt_around_the_daemon_that_lives(world: World, damage: bytes) -> None:
    # The daemon's own next write must not be what repairs it.
    world.environ["SARI_HEARTBEAT_SEC"] = "600"
    _answers(world)
    daemon = world.one_daemon()
    wait_until(lambda: world.registry()["workspaces"], "the workspace is registered")
    world.registry_file.write_bytes(damage)
    _answers(world, "second")
    assert world.one_daemon() == daemon
    assert [entry["pid"] for entry in world.registry()["daemons"].values()] == [daemon]
    assert any(damage == aside.read_bytes() for aside in world.data.glob("server.json.damaged-*"))


def test_a_deleted_registry_is_rebuilt_around_the_daemon_that_lives(world: World) -> None:
    _answers(world)
    daemon = world.one_daemon()
    world.registry_file.unlink()
    _answers(world, "second")
    assert world.one_daemon() == daemon


def test_a_registry_of_version_1_is_migrated(world: World) -> None:
    world.data.mkdir(parents=True)
    sleeper = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        # The sleeper's entry is an old daemon that lives, as far as a pid can tell; the other one is long dead.
        instances = {
            "/old/root": {"pid": sleeper.pid, "port": 9, "start_ts": time.time() + 5, "version": "0.0.9"},
            "/dead/root": {"pid": 2**22 + 1, "port": 9},
        }
        world.registry_file.write_text(json.dumps({"version": "1.0", "instances": instances, "note": "kept"}))
        world.registry_file.chmod(0o644)
        _answers(world)
        wait_until(
            lambda: str(world.base / "project") in world.registry()["workspaces"], "the new workspace is there"
        )
        registry = world.registry()
        assert registry["version"] == "2.0"
        assert registry["note"] == "kept"
        assert "/old/root" in registry["workspaces"]
        assert "/dead/root" not in registry["workspaces"]
        assert world.registry_file.stat().st_mode & 0o777 == 0o600
    finally:
        sleeper.kill()
        sleeper.communicate()


def test_dead_and_reused_pids_count_for_nothing(world: World) -> None:
    world.data.mkdir(parents=True)
    common = {"host": "127.0.0.1", "port": 9, "version": "9.9.9", "draining": False, "token": "x"}
    daemons = {
        "dead": {**common, "pid": 2**22 + 1, "start_ts": time.time()},
        # Our own pid lives, but began long after this entry was written.
        "reused": {**common, "pid": os.getpid(), "start_ts": 1_000_000_000.0},
        "marked": {**common, "pid": os.getpid(), "start_ts": time.time(), "process_mark": "another:1"},
    }
    workspaces = {"/a": {"boot_id": "dead"}, "/b": {"boot_id": "reused"}, "/c": {"boot_id": "nobody"}}
    world.registry_file.write_text(json.dumps({"version": "2.0", "daemons": daemons, "workspaces": workspaces}))
    _answers(world)
    assert [entry["pid"] for entry in world.registry()["daemons"].values()] == [world.one_daemon()]
    assert not {"/a", "/b", "/c"} & set(world.registry()["workspaces"])


@contextmanager
def _mounted(path: Path, *options: str) -> Iterator[None]:
    subprocess.run(["mount", "-t", "tmpfs", *options, "tmpfs", str(path)], check=True)
    try:
        yield
    finally:
        wait_until(lambda: subprocess.run(["umount", str(path)], capture_output=True).returncode == 0, "unmounted")


@pytest.mark.needs("root")
def test_a_registry_that_cannot_be_written_is_said_clearly(world: World) -> None:
    world.data.mkdir(parents=True)
    with _mounted(world.data, "-o", "ro"):
        message = _error(world)
        assert str(world.data) in message
        assert "SARI_REGISTRY_FILE" in message
        _end(world)


@pytest.mark.needs("root")
def test_a_full_disk_is_said_clearly_and_the_running_daemon_goes_on(world: World) -> None:
    world.data.mkdir(parents=True)
    # The log must not be what fills up: the daemon that runs has all it needs.
    with _mounted(world.data, "-o", "size=8m"):
        world.environ["SARI_HEARTBEAT_SEC"] = "0.2"
        _answers(world)
        daemon = world.one_daemon()
        filler = world.data / "filler"
        _fill(filler)
        _answers(world)
        assert world.one_daemon() == daemon
        assert [entry["pid"] for entry in world.registry()["daemons"].values()] == [daemon]
        assert world.sari("daemon", "stop").returncode == 0
        world.registry_file.unlink(missing_ok=True)
        message = _error(world)
        assert "space" in message
        filler.unlink()
        _answers(world)
        _end(world)


def _fill(path: Path) -> None:
    with path.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(b"x" * 4096)


def _end(world: World) -> None:
    """Nothing may be left that holds the mount."""
    world.end_shims()
    world.sari("daemon", "stop")
    world.wait_for_only()


@pytest.mark.parametrize("lock", ["server.json.lock", "start.lock"])
def test_a_lock_held_by_a_stopped_process_is_named_and_hangs_nobody(world: World, lock: str) -> None:
    world.data.mkdir(parents=True)
    program = (
        "import fcntl,os,sys,time; f=open(sys.argv[1],'w'); fcntl.flock(f,2); f.write(str(os.getpid())); f.flush();"
        "print(1,flush=True); time.sleep(999)"
    )
    holder = subprocess.Popen([sys.executable, "-c", program, str(world.data / lock)], stdout=subprocess.PIPE)
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"1\n"
        os.kill(holder.pid, signal.SIGSTOP)
        message = _error(world)
        assert str(holder.pid) in message
        assert lock in message
        world.end_shims()
        world.wait_for_only()
    finally:
        holder.kill()
        holder.communicate()
    _answers(world)


def test_a_lock_held_by_a_stopped_process_does_not_keep_clients_from_the_daemon_that_runs(world: World) -> None:
    _answers(world)
    with (world.data / "server.json.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        _answers(world, "second")
    assert len(world.daemons()) == 1


def test_clients_go_around_a_daemon_that_is_stopped(world: World) -> None:
    # Seldom enough that it is not stopped in the middle of a heartbeat, with the registry locked: that is another test.
    world.environ["SARI_HEARTBEAT_SEC"] = "3"
    _answers(world)
    stopped = world.one_daemon()
    world.end_shims()
    kill(stopped, signal.SIGSTOP)
    _answers(world, "second")
    fresh = next(pid for pid in world.daemons() if pid != stopped)
    kill(stopped, signal.SIGCONT)
    wait_until(lambda: world.daemons() == [fresh], "the old one sees that it was replaced, and ends")


def test_files_are_the_owners_alone(world: World) -> None:
    old = os.umask(0)
    try:
        _answers(world)
    finally:
        os.umask(old)
    daemon = world.one_daemon()
    wait_until(lambda: world.registry()["workspaces"], "the workspace is registered")
    for path in [world.data, *world.data.rglob("*")]:
        if path.exists():
            assert path.stat().st_mode & 0o077 == 0, path
    assert world.one_daemon() == daemon
