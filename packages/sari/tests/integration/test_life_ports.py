"""Ports that someone else holds."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from testing.sari.parts import python_part
from testing.sari.processes import wait_until
from testing.sari.shim import SARI, found_paths
from testing.sari.world import World


@contextmanager
def stranger() -> Iterator[int]:
    """A program that accepts and never says a word."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(16)
        yield listener.getsockname()[1]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
        assert isinstance(port, int)
        return port


def _answers(world: World, port: int, **environ: str) -> int:
    """A call is answered though the default port is `port`; returns the port of the daemon that did."""
    root = world.workspace(f"project{len(world.shims)}")
    shim = world.shim(root, environ={"SARI_DAEMON_PORT": str(port), **environ})
    shim.initialize()
    assert found_paths(shim.call("search", {"query": "needle"})) == ["hello.txt"]
    ours = [entry for entry in world.registry()["daemons"].values() if entry.get("token")]
    assert len(ours) == 1
    assert world.one_daemon() == ours[0]["pid"]
    port_used = ours[0]["port"]
    assert isinstance(port_used, int)
    return port_used


def test_a_free_default_port_is_used(world: World) -> None:
    port = _free_port()
    assert _answers(world, port) == port


def test_a_stranger_on_both_default_ports_is_left_alone(world: World) -> None:
    with stranger() as port, stranger() as http_port:
        assert _answers(world, port, SARI_HTTP_PORT=str(http_port)) != port
        place = next(iter(wait_for_workspace(world).values()))
        assert place["http_port"] not in (0, http_port)


def wait_for_workspace(world: World) -> dict[str, dict[str, object]]:
    wait_until(lambda: world.registry()["workspaces"], "the workspace is registered")
    workspaces = world.registry()["workspaces"]
    assert isinstance(workspaces, dict)
    return workspaces


def test_another_users_sari_on_the_default_port_is_left_alone(world: World, other_world: World) -> None:
    port = _free_port()
    assert other_world.sari("daemon", "start", SARI_DAEMON_PORT=str(port)).returncode == 0
    theirs = other_world.one_daemon()
    # We have a token of our own by now, which theirs does not take.
    assert world.sari("daemon", "start").returncode == 0
    assert world.sari("daemon", "stop").returncode == 0
    assert _answers(world, port) != port
    assert other_world.one_daemon() == theirs


def test_the_predecessor_on_the_default_port_and_in_the_registry_is_left_alone(world: World) -> None:
    port = _free_port()
    old = str(python_part("sari0") / "bin/sari")
    world.sari("daemon", "start", "-d", "--daemon-port", str(port), sari=old)
    wait_until(lambda: _listens(port), "the predecessor listens")
    old_pids = world.processes()
    assert _answers(world, port) != port
    doctor = world.sari("doctor", SARI_DAEMON_PORT=str(port))
    assert "before version 3" in doctor.stdout
    assert set(old_pids) <= set(world.processes())


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def test_an_explicit_port_that_is_taken_is_an_error_at_once(world: World) -> None:
    with stranger() as port:
        started = world.sari("daemon", "start", "--daemon-port", str(port))
        assert started.returncode == 1
        assert str(port) in started.stderr
        assert "Choose another port" in started.stderr
        shim = world.shim(world.workspace("project"), "--daemon-port", str(port))
        answer = shim.answer(shim.ask_tool("search", {"query": "needle"}))
        assert str(port) in answer["error"]["message"]  # type: ignore[index]
        shim.end()
    world.wait_for_only()


def test_an_explicit_port_that_is_free_is_used(world: World) -> None:
    port = _free_port()
    assert world.sari("daemon", "start", "--daemon-port", str(port)).returncode == 0
    assert [entry["port"] for entry in world.registry()["daemons"].values()] == [port]
    moved = _free_port()
    refused = world.sari("daemon", "start", "--daemon-port", str(moved))
    assert refused.returncode == 1
    assert "already runs on port" in refused.stderr
    assert world.sari("daemon", "restart", "--daemon-port", str(moved), sari=SARI).returncode == 0
    wait_until(lambda: len(world.daemons()) == 1, "the old daemon is gone")
    assert _answers(world, port) == moved


@pytest.mark.parametrize("flag", ["--daemon-port=0", "--daemon-port=x", "--surprise"])
def test_a_bad_flag_is_refused(world: World, flag: str) -> None:
    refused = world.sari("mcp", flag)
    assert refused.returncode == 2
    assert "usage: sari mcp" in refused.stderr
