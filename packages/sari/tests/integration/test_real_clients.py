"""Real MCP clients: each lists, calls, cancels, and sees nothing of a daemon that is killed in between."""

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from sari.protocol.catalog import TOOLS
from testing.sari.codex import Codex
from testing.sari.parts import node_part, python_part
from testing.sari.processes import kill, wait_until
from testing.sari.shim import SARI
from testing.sari.world import World

pytestmark = pytest.mark.xdist_group("sari-clients")

NAMES = sorted(spec.name for spec in TOOLS if spec.listed)
_DRIVER = Path(__file__).with_name("sdk_driver.py")
_TIMEOUT_S = 240


def _sdk(world: World, root: Path, part: str, mode: str) -> subprocess.Popen[str]:
    python = python_part(part) / "bin/python"
    return subprocess.Popen(
        [str(python), str(_DRIVER), mode, SARI, str(world.home)],
        cwd=root,
        env=world.environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def _seen(process: subprocess.Popen[str]) -> dict[str, Any]:
    try:
        out, errors = process.communicate(timeout=_TIMEOUT_S)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 0, errors[-3000:]
    seen = json.loads(out)
    assert isinstance(seen, dict)
    return seen


@pytest.mark.parametrize(
    ("part", "mode"),
    [("mcp1", "session"), ("mcp2", "session"), ("mcp2", "legacy"), ("mcp2", "auto"), ("mcp2", "2026-07-28")],
)
def test_the_python_sdk_sees_no_crash(world: World, part: str, mode: str) -> None:
    seen = _seen(_sdk(world, world.workspace("project"), part, mode))
    assert sorted(seen.pop("tools")) == NAMES
    hit = ["hello.txt"]
    assert seen == {"first": hit, "cancelled": True, "after_cancel": hit, "after_kill": hit, "restarted": True}
    world.wait_for_only(world.wait_for_one_daemon())


def _inspect(world: World, root: Path, *words: str) -> subprocess.Popen[str]:
    place = node_part("inspector") / "node_modules/.bin"
    return subprocess.Popen(
        [str(place / "node"), str(place / "mcp-inspector"), "--cli", "--format", "json", *words, SARI, "mcp"],
        cwd=root,
        env=world.environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


@pytest.mark.needs("npm")
@pytest.mark.parametrize("era", ["legacy", "auto", "modern"])
def test_the_inspector_sees_no_crash(world: World, era: str) -> None:
    root = world.workspace("project")
    eras = ("--protocol-era", era)
    search = ("--method", "tools/call", "--tool-name", "search", "--tool-args-json", '{"query": "needle"}')
    listed = _seen(_inspect(world, root, *eras, "--method", "tools/list"))
    assert sorted(tool["name"] for tool in listed["result"]["tools"]) == NAMES
    assert _matches(_seen(_inspect(world, root, *eras, *search))["result"]) == ["hello.txt"]
    daemon = world.one_daemon()
    # Ended in the middle of a call, it leaves nothing behind.
    kill(daemon, signal.SIGSTOP)
    cut = _inspect(world, root, *eras, *search)
    wait_until(lambda: len(world.processes()) > 2, "its shim runs")
    os.killpg(cut.pid, signal.SIGTERM)
    cut.communicate(timeout=_TIMEOUT_S)
    kill(daemon, signal.SIGCONT)
    world.wait_for_only(world.wait_for_one_daemon())
    # Killed in between, the daemon is not missed.
    kill(world.one_daemon())
    assert _matches(_seen(_inspect(world, root, *eras, *search))["result"]) == ["hello.txt"]
    world.wait_for_only(world.wait_for_one_daemon())


def _matches(result: dict[str, Any]) -> list[str]:
    return [match["path"] for match in result["structuredContent"]["matches"]]


@pytest.mark.needs("npm")
def test_codex_sees_no_crash(world: World) -> None:
    root = world.workspace("project")
    codex = Codex(world.home, world.environ, root, SARI)
    try:
        assert codex.tools() == NAMES
        assert _matches(codex.call("search", {"query": "needle"})) == ["hello.txt"]
        daemon = world.one_daemon()
        kill(daemon, signal.SIGSTOP)
        waiting = codex.ask_tool("search", {"query": "needle"})
        kill(daemon)
        assert _matches(codex.answer(waiting)) == ["hello.txt"]
        fresh = world.wait_for_one_daemon()
        assert fresh != daemon
        # Its client gone in the middle of a call, the daemon goes on alone.
        codex.ask_tool("search", {"query": "needle"})
    finally:
        codex.close()
    world.wait_for_only(fresh)


@pytest.mark.needs("npm")
def test_several_real_clients_at_once_share_one_daemon(world: World) -> None:
    root = world.workspace("project")
    search = ("--method", "tools/call", "--tool-name", "search", "--tool-args-json", '{"query": "needle"}')
    codex = Codex(world.home, world.environ, root, SARI)
    try:
        inspectors = [_inspect(world, root, "--protocol-era", era, *search) for era in ("legacy", "modern")]
        assert _matches(codex.call("search", {"query": "needle"})) == ["hello.txt"]
        assert [_matches(_seen(one)["result"]) for one in inspectors] == [["hello.txt"]] * 2
        daemon = world.one_daemon()
        # The SDK's driver kills the daemon in between: Codex does not notice.
        assert _seen(_sdk(world, root, "mcp2", "auto"))["after_kill"] == ["hello.txt"]
        assert _matches(codex.call("search", {"query": "needle"})) == ["hello.txt"]
        assert world.wait_for_one_daemon() != daemon
    finally:
        codex.close()
    world.wait_for_only(world.wait_for_one_daemon())
