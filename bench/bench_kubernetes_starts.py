"""Kubernetes: from a user's request to a Pod, by a whole CodeHub, and how much of that is the API server's own time.

Needs the test node: scripts/kubernetes/exec.sh .venv/bin/python -m bench kubernetes_starts. The node takes no Pods while it
is measured, so that only CodeHub and the API server work on them. Writes are counted by the API server. If the node was
started with CODEHUB_KUBERNETES_APISERVER_ARGS=--v=3, the API server logs how long each request took, and each start is
split by that; otherwise its time is that of creating a copy of the Pod.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import statistics
import tempfile
import time
import uuid
from pathlib import Path

import httpx

from codehub.adapters.kubernetes.client import ApiClient, lines
from testing.codehub.container_walkthrough import Walk
from testing.codehub.kubernetes import Node, admin_client, fresh_namespace, lab
from testing.codehub.kubernetes_stack import kubernetes_stack
from testing.codehub.objectstore import running_s3_server

_STARTS = 40
_INSTANCES = "codehub.dev/role=instance"
_CREATE = re.compile(
    r'verb="POST" URI="/api/v1/namespaces/([^/"]+)/pods(?:[?][^"]*)?" latency="?([0-9.]+)(µs|ms|s)\b'
)
_UNITS = {"µs": 1e-6, "ms": 1e-3, "s": 1.0}
_WRITES = re.compile(r"^apiserver_request_total\{(.*)\} (\d+)$", re.M)


def measure() -> list[dict[str, object]]:
    if not os.environ.get("CODEHUB_TEST_KUBERNETES"):
        return [{"what": "left out: run it by scripts/kubernetes/exec.sh", "value": 0, "unit": ""}]
    node = Node(lab())
    node.load_image()
    settings = {
        "COORDINATOR_MAX_PARALLEL": str(2 * _STARTS),  # every start goes on waiting for a node
        "LIMITS_MAX_RUNNING_PER_USER": str(2 * _STARTS),
        "LIMITS_MAX_RUNNING_GLOBAL": str(2 * _STARTS),
    }
    with (
        tempfile.TemporaryDirectory() as place,
        running_s3_server(Path(tempfile.mkdtemp(prefix="chs3-"))) as server,
        fresh_namespace(node) as namespace,
        kubernetes_stack(node, namespace, server, Path(place), **settings) as walk,
    ):
        return asyncio.run(_measure(walk, node, namespace))


async def _measure(walk: Walk, node: Node, namespace: str) -> list[dict[str, object]]:
    client = admin_client(namespace)
    try:
        with walk.signed_in() as api:
            made = await asyncio.to_thread(_stopped_workspaces, walk, api)
            node.kubectl("cordon", "node1")
            try:
                before = await _writes(client)
                log = node.lab / "run/log/apiserver.log"
                logged = log.stat().st_size
                spent = _cpu_s(walk)
                took, answered = await _start_each(client, api, made)
                cpu = {part: after - spent[part] for part, after in _cpu_s(walk).items()}
                writes = await _writes(client) - before
                exact = _logged_creates(log, logged, namespace)
                theirs = exact if len(exact) == len(made) else [await _copy(client) for _ in made]
            finally:
                await asyncio.to_thread(_stop_all, node, namespace, api, made)
                node.kubectl("uncordon", "node1")
    finally:
        await client.close()
    ours = [all_s - api_s for all_s, api_s in zip(took, theirs, strict=True)]
    return [
        *_row("request to start → Pod created", took),
        *_row("of that, until the request is answered", answered),
        *_row("the API server's own time" + (" in it" if theirs is exact else ": create of the same Pod"), theirs),
        {"what": "CodeHub's part, p50", "value": statistics.median(ours) * 1000, "unit": "ms"},
        {"what": "CodeHub's part, p99", "value": _p99(ours) * 1000, "unit": "ms", "floor": 50},
        *({"what": f"CPU of {part} per start", "value": cpu[part] / len(made) * 1000, "unit": "ms"} for part in cpu),
        {"what": "writes per start, counted by the API server", "value": writes / len(made), "unit": "", "floor": 2},
    ]


def _cpu_s(walk: Walk) -> dict[str, float]:
    """Return the CPU time that each part has used, with its child processes."""
    found = {}
    for part in ("api", "coordinator", "postgres"):
        family = [one for main in walk.stack.processes(part) for one in (main, *main.children(recursive=True))]
        found[part] = sum(one.cpu_times().user + one.cpu_times().system for one in family)
    return found


async def _start_each(client: ApiClient, api: httpx.Client, made: list[str]) -> tuple[list[float], list[float]]:
    """Start one after the other, and return how long each takes until its Pod is there, and until it is answered."""
    created: dict[str, float] = {}
    seen = asyncio.Condition()
    watch = asyncio.create_task(_watch(client, created, seen))
    took, answered = [], []
    for workspace_id in made:
        began = time.perf_counter()
        answer = await asyncio.to_thread(api.post, f"/api/v1/workspaces/{workspace_id}:start")
        answered.append(time.perf_counter() - began)
        assert answer.status_code == 202, answer.text
        async with asyncio.timeout(120), seen:
            await seen.wait_for(lambda one=workspace_id: one in created)  # type: ignore[misc]
        took.append(created[workspace_id] - began)
    watch.cancel()
    return took, answered


def _stop_all(node: Node, namespace: str, api: httpx.Client, made: list[str]) -> None:
    for workspace_id in made:
        api.post(f"/api/v1/workspaces/{workspace_id}:stop")
    node.kubectl("delete", "pods", "--all", "-n", namespace, "--wait=false")


def _stopped_workspaces(walk: Walk, api: httpx.Client) -> list[str]:
    """Create workspaces that have a home and are stopped."""
    made = []
    for _ in range(_STARTS):
        body = {"name": f"bench {uuid.uuid4().hex[:8]}", "image_ref": "tiny", "start": False}
        answer = api.post("/api/v1/workspaces", json=body)
        assert answer.status_code == 201, answer.text
        made.append(str(answer.json()["id"]))
    for workspace_id in made:
        answer = api.patch(f"/api/v1/workspaces/{workspace_id}", json={"desired_state": "STANDBY"})
        assert answer.status_code < 300, answer.text
    for workspace_id in made:
        walk.reach(api, workspace_id, "STANDBY")
    return made


async def _watch(client: ApiClient, created: dict[str, float], seen: asyncio.Condition) -> None:
    """Note when each workspace's Pod appears."""

    path = f"/api/v1/namespaces/{client.namespace}/pods"
    async with client.stream(path, {"watch": "true", "labelSelector": _INSTANCES}, read_timeout_s=None) as pieces:
        async for line in lines(pieces):
            event = json.loads(line)
            workspace_id = event["object"]["metadata"]["labels"]["codehub.dev/workspace"]
            async with seen:
                created.setdefault(workspace_id, time.perf_counter())
                seen.notify_all()


def _logged_creates(log: Path, begin: int, namespace: str) -> list[float]:
    """Return how long the API server took for each Pod that was created in the namespace since then, in that order."""
    with log.open("rb") as file:
        file.seek(begin)
        text = file.read().decode()
    return [float(took) * _UNITS[unit] for where, took, unit in _CREATE.findall(text) if where == namespace]


async def _copy(client: ApiClient) -> float:
    """Create a copy of one of the Pods, and return how long that takes."""
    path = f"/api/v1/namespaces/{client.namespace}/pods"
    items = (await client.list_page(path, {"limit": "1", "labelSelector": _INSTANCES}))["items"]
    metadata = items[0]["metadata"]
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"copy-{uuid.uuid4().hex[:8]}",
            "labels": metadata["labels"],
            "annotations": metadata["annotations"],
            "ownerReferences": metadata["ownerReferences"],
        },
        "spec": items[0]["spec"],
    }
    began = time.perf_counter()
    made = await client.create(path, body)
    took = time.perf_counter() - began
    await client.delete(f"{path}/{body['metadata']['name']}", made["metadata"]["uid"], grace_s=0)
    return took


async def _writes(client: ApiClient) -> int:
    """Return how many writes of Pods, claims and Jobs the API server has served, without those of their status."""
    async with client.stream("/metrics", {}, read_timeout_s=60) as pieces:
        text = b"".join([piece async for piece in pieces]).decode()
    total = 0
    for labels, count in _WRITES.findall(text):
        found = dict(re.findall(r'(\w+)="([^"]*)"', labels))
        is_write = found["verb"] in ("POST", "PUT", "PATCH", "DELETE")
        is_ours = found["resource"] in ("pods", "persistentvolumeclaims", "jobs") and not found["subresource"]
        total += int(count) if is_write and is_ours else 0
    return total


def _row(what: str, took: list[float]) -> list[dict[str, object]]:
    return [
        {"what": f"{what}, p50", "value": statistics.median(took) * 1000, "unit": "ms"},
        {"what": f"{what}, p99", "value": _p99(took) * 1000, "unit": "ms"},
    ]


def _p99(took: list[float]) -> float:
    return sorted(took)[int(len(took) * 0.99)]  # of fewer than 100: the slowest
