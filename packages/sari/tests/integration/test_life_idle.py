"""Nobody there: the workspace is closed, the daemon goes, and never while a call runs."""

import json
import signal

from testing.sari.processes import kill, wait_until
from testing.sari.world import World


def _workspaces(world: World) -> list[str]:
    shown = json.loads(world.sari("status", "--json").stdout)
    return [workspace["root"] for workspace in shown["workspaces"]]


def test_a_workspace_stays_open_for_the_next_client(world: World) -> None:
    root = world.workspace("one")
    for _ in range(2):
        shim = world.shim(root)
        shim.initialize()
        shim.call("search", {"query": "needle"})
        shim.end()
        assert _workspaces(world) == [str(root)]


def test_a_workspace_is_closed_when_its_last_session_leaves_and_the_daemon_stays(world: World) -> None:
    world.environ |= {"SARI_WORKSPACE_IDLE_SEC": "0"}
    roots = [world.workspace("one"), world.workspace("two")]
    shims = [world.shim(root) for root in (roots[0], roots[0], roots[1])]
    for shim in shims:
        shim.initialize()
        shim.call("search", {"query": "needle"})
    daemon = world.one_daemon()
    shims[0].end()
    shims[2].end()
    wait_until(lambda: _workspaces(world) == [str(roots[0])], "only the workspace in use is open")
    shims[1].end()
    wait_until(lambda: _workspaces(world) == [], "no workspace is open")
    assert world.one_daemon() == daemon


def test_an_idle_daemon_ends_and_the_next_call_starts_another(world: World) -> None:
    world.environ |= {"SARI_DAEMON_IDLE_SEC": "1"}
    root = world.workspace("project")
    shim = world.shim(root)
    shim.initialize()
    shim.call("search", {"query": "needle"})
    first = world.one_daemon()
    shim.end()
    world.wait_for_only()
    assert list((world.data / "locks").iterdir()) == []
    assert world.registry()["daemons"] == {}
    again = world.shim(root)
    again.call("search", {"query": "needle"})
    assert world.one_daemon() != first


def test_a_session_in_use_keeps_an_idle_daemon(world: World) -> None:
    world.environ |= {"SARI_DAEMON_IDLE_SEC": "0.5"}
    busy = world.shim(world.workspace("project"))
    busy.initialize()
    busy.call("status", {})
    daemon = world.one_daemon()
    # Other clients come and go for several times the idle time.
    for _ in range(4):
        other = world.shim(world.workspace(f"other{len(world.shims)}"))
        other.call("status", {})
        other.end()
    busy.call("status", {})
    assert world.one_daemon() == daemon


def test_stopping_says_so_only_when_the_process_is_gone_even_if_it_was_stopped(world: World) -> None:
    for stopped in (False, True):
        assert world.sari("daemon", "start").returncode == 0
        pid = world.one_daemon()
        if stopped:
            kill(pid, signal.SIGSTOP)
        done = world.sari("daemon", "stop")
        assert world.daemons() == []
        assert str(pid) in done.stdout
    assert "no sari daemon is running" in world.sari("daemon", "stop").stdout
    assert world.sari("daemon", "status").returncode == 3


def test_after_a_stop_only_the_next_request_of_a_client_starts_a_daemon(world: World) -> None:
    shim = world.shim(world.workspace("project"))
    shim.initialize()
    shim.call("status", {})
    assert world.sari("daemon", "stop").returncode == 0
    assert shim.request("ping")["result"] == {}
    assert shim.request("tools/list")["result"]
    world.wait_for_only(shim.pid)
    shim.call("status", {})
    assert len(world.daemons()) == 1
