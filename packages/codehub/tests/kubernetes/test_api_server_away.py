"""The API server is away for a full minute under a whole CodeHub: open workspaces go on, nothing is decided or deleted, and
everything that waited completes afterwards."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from testing.codehub.container_walkthrough import Walk
from testing.codehub.kubernetes import Node
from testing.codehub.kubernetes_kills import leftovers
from testing.codehub.kubernetes_stack import kubernetes_stack
from testing.codehub.objectstore import S3Server

pytestmark = [pytest.mark.needs("kubernetes", "root"), pytest.mark.timeout(900)]
_AWAY_S = 60.0
_SUM = "python3 -c \"import hashlib; print(hashlib.sha256(open('/home/coder/large', 'rb').read()).hexdigest())\""
_FILL = "python3 -c \"import os; open('/home/coder/large', 'wb').write(os.urandom(30_000_000))\""


def seen(client: httpx.Client, workspace_id: str) -> dict[str, Any]:
    return dict(client.get(f"/api/v1/workspaces/{workspace_id}").json())


def pods_of(node: Node, namespace: str, workspace_id: str, role: str) -> list[str]:
    """The uids of its Pods that are not being deleted."""
    selector = f"codehub.dev/workspace={workspace_id},codehub.dev/role={role}"
    items = json.loads(node.kubectl("get", "pods", "-n", namespace, "-l", selector, "-o", "json"))["items"]
    return [one["metadata"]["uid"] for one in items if "deletionTimestamp" not in one["metadata"]]


def numbers(last: int) -> list[str]:
    return [str(number) for number in range(1, last + 1)]


def is_used_for_a_minute(walk: Walk, client: httpx.Client, open_one: str, others: tuple[str, str]) -> int:
    """Use a workspace through the proxy for the time that the server is away; return how often it answered."""
    archiving, delayed = others
    assert client.post(f"/api/v1/workspaces/{delayed}:archive").status_code == 202
    began, lines, named = time.monotonic(), 0, False
    while time.monotonic() - began < _AWAY_S or not named:
        assert time.monotonic() - began < 4 * _AWAY_S, "the workspace that waits does not say what for"
        lines += 1
        said = walk.page(client, open_one, "/run", "POST", f"echo {lines} >> ~/log; cat ~/log; sleep 0.5")
        assert said.split() == numbers(lines)
        for workspace_id in (open_one, archiving, delayed):
            now = seen(client, workspace_id)
            assert now["phase"] == "RUNNING" or workspace_id == archiving, now
            assert now["phase"] != "ERROR", now
        blocked = seen(client, delayed)["blocked"]
        named = named or (blocked is not None and "API server" in blocked["message"])
    return lines


def test_workspaces_go_on_without_the_api_server_and_archives_complete_when_it_is_back(
    node: Node, namespace: str, s3_server: S3Server, tmp_path: Path
) -> None:
    with kubernetes_stack(node, namespace, s3_server, tmp_path) as walk, walk.signed_in() as client:
        open_one, archiving, delayed = (walk.create(client, "tiny") for _ in range(3))
        for workspace_id in (open_one, archiving, delayed):
            walk.reach(client, workspace_id, "RUNNING")
            walk.page(client, workspace_id, "/run", "POST", _FILL)
        sums = {one: walk.page(client, one, "/run", "POST", _SUM) for one in (archiving, delayed)}
        pods = pods_of(node, namespace, open_one, "instance")
        assert client.post(f"/api/v1/workspaces/{archiving}:archive").status_code == 202
        walk.stack.wait(lambda: bool(pods_of(node, namespace, archiving, "transfer")))
        node.program("kill", "apiserver")
        try:
            lines = is_used_for_a_minute(walk, client, open_one, (archiving, delayed))
        finally:
            node.program("start", "apiserver")
            node.wait_ready()
        for workspace_id in (archiving, delayed):
            walk.reach(client, workspace_id, "ARCHIVED")
        assert pods_of(node, namespace, open_one, "instance") == pods, "it was never restarted"
        assert walk.page(client, open_one, "/run", "POST", "cat ~/log").split() == numbers(lines)
        for workspace_id in (archiving, delayed):
            walk.ask(client, workspace_id, "start", "RUNNING")
            assert walk.page(client, workspace_id, "/run", "POST", _SUM) == sums[workspace_id]
        walk.stack.wait(lambda: leftovers(node, namespace)() == [])
