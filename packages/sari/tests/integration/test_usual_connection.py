"""The short way to a running daemon is taken when everything is as usual, and leaves every other case to the rules."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sari import __version__
from sari.registry.layout import Layout
from sari.registry.usual import connect_usual
from testing.sari.processes import wait_until
from testing.sari.world import World


def _started(world: World) -> tuple[Layout, str]:
    root = world.workspace("project")
    world.open_workspace(root)
    return Layout(str(world.registry_file)), str(root)


def test_the_daemon_of_a_workspace_is_connected_without_the_rules(world: World) -> None:
    layout, root = _started(world)
    for wanted in (root, "/not/opened/yet", None):
        usual = connect_usual(layout, wanted, __version__)
        assert usual is not None
        usual[0].close()
        assert usual[1] in world.registry()["daemons"]


_UNUSUAL: dict[str, Callable[[dict[str, Any]], object]] = {
    "another version": lambda daemon: daemon.update(version="2.9"),
    "draining": lambda daemon: daemon.update(draining=True),
    "another token": lambda daemon: daemon.update(token="guessed"),
    "no token": lambda daemon: daemon.pop("token"),
    "a port that is none": lambda daemon: daemon.update(port=70_000),
    "a port of another type": lambda daemon: daemon.update(port="http"),
    "no pid": lambda daemon: daemon.pop("pid"),
}


@pytest.mark.parametrize("case", _UNUSUAL)
def test_anything_unusual_is_left_to_the_rules(world: World, case: str) -> None:
    layout, root = _started(world)
    content = world.registry()
    for daemon in content["daemons"].values():
        _UNUSUAL[case](daemon)
    other = Layout(str(world.base / "server.json"))
    (world.base / "server.json").write_text(json.dumps(content))
    assert connect_usual(other, root, __version__) is None
    assert connect_usual(layout, root, "9.9") is None


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"daemons": 1, "workspaces": {}}', "[" * 100_000])
def test_a_damaged_registry_is_left_to_the_rules(world: World, content: str) -> None:
    (world.base / "server.json").write_text(content)
    assert connect_usual(Layout(str(world.base / "server.json")), None, __version__) is None
    assert connect_usual(Layout(str(world.base)), None, __version__) is None


def test_a_stopped_daemon_is_left_to_the_rules(world: World) -> None:
    layout, root = _started(world)
    pid = world.one_daemon()
    os.kill(pid, signal.SIGSTOP)
    try:
        assert connect_usual(layout, root, __version__) is None
    finally:
        os.kill(pid, signal.SIGCONT)


def test_a_search_imports_nothing_slow(world: World) -> None:
    """Importing `dataclasses` or `subprocess` takes longer than the search."""
    _, root = _started(world)
    # Until then the command line searches by itself.
    wait_until(lambda: world.is_warm(Path(root)), "the workspace is warm")
    code = (
        "import sys; from sari.cli.main import main; code = main(['search', 'needle']); "
        "slow = {'dataclasses', 'inspect', 'subprocess', 'shutil', 'typing', 'sari.registry.find'}; "
        "print(code, *slow & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=root,
        env=world.environ,
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert done.stdout.splitlines()[-1] == "0"
