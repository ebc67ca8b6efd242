"""Workspaces with an earlier and with a newer `workspaced` go on under ours with all their doors; none is restarted."""

from __future__ import annotations

import asyncio
import functools
import json
import os
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from codehub.adapters.process.records import Record, read_record
from codehub.adapters.upstream_activity import UpstreamActivity
from codehub.adapters.workspaced_client import WorkspacedClient
from codehub.ports.instances import Upstream
from testing.codehub.doors import Doors, open_doors
from testing.codehub.first_release import tree_of
from testing.codehub.full_stack import TIMEOUT_S, Stack, fresh_stack
from testing.codehub.laptop import Laptop
from testing.codehub.other_helpers import TREE, give_helper, make_newer_helper, unpack_earlier_helper
from testing.codehub.terminals import attached, opened
from testing.ports import free_port, free_ports

BUSY = "while 1: pass"

pytestmark = [pytest.mark.needs("git", "bwrap", "sshd"), pytest.mark.timeout(900)]


@dataclass(frozen=True)
class Begun:
    """What runs in a workspace from before the upgrade."""

    helper: int
    record: Record
    terminal: str
    process: str


def test_the_earlier_helper_is_what_git_has(tmp_path: Path) -> None:
    unpack_earlier_helper(tmp_path / "workspaced")
    assert tree_of(tmp_path / "workspaced", tmp_path / "git") == TREE


def test_workspaces_with_an_earlier_and_a_newer_helper_keep_their_doors(tmp_path: Path) -> None:
    with fresh_stack() as stack:
        earlier, newer = _started_with_other_helpers(stack, tmp_path)
        begun = {doors: _begin(doors) for doors in (earlier, newer)}
        stack.end()

        stack.environment.pop("PYTHONPATH")
        if ours := os.environ.get("PYTHONPATH"):
            stack.environment["PYTHONPATH"] = ours
        stack.up()
        assert _is_the_earlier(earlier)
        status, hello = _asked(newer, "GET", "/hello")
        assert (status, hello["version"], hello["features"][-1]) == (200, "0.3.0", "teleports")
        for doors, before in begun.items():
            doors.until("RUNNING")
            assert (doors.helper(), _record(doors)) == (before.helper, before.record), "nothing was restarted"
            _every_door_works(doors, before)
            _ssh_works(doors, tmp_path / f"laptop-{doors.workspace_id}")
        _secrets_reach(earlier, newer)
        # It dies, and its supervisor, which is as old, starts the same version again.
        earlier.kill_helper(begun[earlier].helper)
        stack.wait(lambda: earlier.helper() != begun[earlier].helper)
        assert _is_the_earlier(earlier)
        _every_door_works(earlier, begun[earlier])
        # From their next start on they have ours.
        for doors in (earlier, newer):
            doors.sleep()
            doors.sh("true")
            assert not _is_the_earlier(doors)
            assert "teleports" not in _asked(doors, "GET", "/hello")[1]["features"]


def _started_with_other_helpers(stack: Stack, tmp_path: Path) -> tuple[Doors, Doors]:
    """Start a CodeHub, and a workspace with the earlier helper and one with a newer one."""
    api, proxy = free_ports(2)
    given = tmp_path / "workspaced"
    unpack_earlier_helper(given)
    stack.with_tiny_ide()
    paths = [give_helper(given, tmp_path / "give"), *filter(None, [os.environ.get("PYTHONPATH")])]
    stack.environment |= {
        "CODEHUB_API_BIND": f"127.0.0.1:{api}",
        "CODEHUB_PROXY_BIND": f"127.0.0.1:{proxy}",
        "LIMITS_MAX_RUNNING_PER_USER": "2",
        "PYTHONPATH": os.pathsep.join(paths),
    }
    stack.up()
    earlier = open_doors(stack, "earlier")
    given.rename(tmp_path / "earlier")  # in the workspace it stays mounted
    make_newer_helper(given)
    with stack.client() as client:
        created = client.post("/api/v1/workspaces", json={"name": "newer"}).json()
    newer = Doors(stack, created["id"], earlier.token)
    newer.until("RUNNING")
    return earlier, newer


def _begin(doors: Doors) -> Begun:
    terminal = opened(doors, ["bash", "--norc"])
    with attached(doors, terminal) as viewer:
        viewer.type("echo be''fore\n")
        viewer.until("before")
    with doors.client() as client:
        process = client.post(doors.api + "/processes", json={"command": "echo begun; exec sleep infinity"}).json()
    return Begun(doors.helper(), _record(doors), terminal, process["id"])


def _record(doors: Doors) -> Record:
    (file,) = doors.stack.data_dir.glob(f"**/{doors.workspace_id}/record.json")
    record = read_record(file.parent)
    assert record is not None
    return record


def _helper(doors: Doors) -> Upstream:
    helper = _record(doors).workspaced
    assert helper is not None
    return helper


def _asked(doors: Doors, method: str, path: str) -> tuple[int, Any]:
    """Ask its helper itself."""

    async def ask() -> tuple[int, Any]:
        async with WorkspacedClient().request(_helper(doors), method, path) as answer:
            return answer.status, json.loads(await answer.read())

    return asyncio.run(ask())


def _is_the_earlier(doors: Doors) -> bool:
    """Return whether its helper has no request for skipping a step: it was added later."""
    status, answer = _asked(doors, "POST", "/setup/skip")
    assert status in (404, 409), answer
    return "is not known to workspaced" in answer["error"]["message"]


def _every_door_works(doors: Doors, begun: Begun) -> None:
    with doors.client() as client:
        shown = {item["id"]: item["state"] for item in client.get(doors.api + "/processes").json()["items"]}
        assert shown[begun.process] == "running"
        assert client.get(f"{doors.api}/processes/{begun.process}/output").text == "begun\n"
        assert client.put(doors.api + "/files/a/b.txt", content=b"one").is_success
        (entry,) = client.get(doors.api + "/files/a", params={"list": 1}).json()["items"]
        assert entry["path"] == "b.txt"
        assert client.post(doors.api + "/files:edit", json={"path": "a/b.txt", "old": "one", "new": "two"}).is_success
        assert client.get(doors.api + "/files/a/b.txt").content == b"two"
        assert client.delete(doors.api + "/files/a", params={"recursive": 1}).status_code == 204
        assert begun.terminal in [item["id"] for item in client.get(doors.api + "/terminals").json()["items"]]
        assert client.get(doors.api + "/setup-log").status_code == 200
        with attached(doors, begun.terminal) as viewer:
            viewer.until("before")
            viewer.type("echo af''ter\n")
            viewer.until("after")
        port = free_port()
        server = doors.serve(["python3", "-m", "http.server", "--bind", "127.0.0.1", str(port)], port)
        assert client.get(doors.at_proxy(f"/w/{doors.workspace_id}/port/{port}/")).status_code == 200
        doors.kill(server)
    _is_busy_with_its_work(doors)


def _is_busy_with_its_work(doors: Doors) -> None:
    """What the coordinator asks before it puts a workspace to sleep."""
    with doors.client() as client:
        working = client.post(doors.api + "/processes", json={"command": ["python3", "-c", BUSY]}).json()["id"]
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            work = asyncio.run(UpstreamActivity().work(_helper(doors), "/activity", datetime.now(UTC)))
            if work is not None and BUSY in work.reason:
                break
            assert time.monotonic() < deadline, work
            time.sleep(0.2)
        client.post(f"{doors.api}/processes/{working}/signal", json={"signal": "KILL"})


def _ssh_works(doors: Doors, home: Path) -> None:
    home.mkdir()
    laptop = Laptop(doors, home)
    assert laptop.ssh(laptop.host, "echo in $CODEHUB_WORKSPACE_ID") == f"in {doors.workspace_id}\n".encode()
    (home / "sent").write_text("over the tar")
    there = f"{doors.workspace_id}:sent"
    for words in ((str(home / "sent"), there), (there, str(home / "back"))):
        done = doors.codehub("ws", "cp", *words)
        assert done.returncode == 0, done.stderr
    assert (home / "back").read_text() == "over the tar"


def _secrets_reach(*all_doors: Doors) -> None:
    """What goes over the link that CodeHub keeps to every helper."""
    with all_doors[0].client() as client:
        assert client.put("/api/v1/secrets/KEPT", json={"kind": "env", "value": "by the owner"}).is_success
    for doors in all_doors:
        doors.stack.wait(functools.partial(_is_kept, doors))


def _is_kept(doors: Doors) -> bool:
    return doors.sh("echo $KEPT") == "by the owner\n"
