"""Kubernetes: the cost of watching 1,000 pods at rest, and 100 creates at once beside `kubectl create` of the same pods.

Needs the test node: scripts/kubernetes/exec.sh .venv/bin/python -m bench kubernetes. Its pods name a scheduler that is
not there, so that nothing but the API server works on them. CODEHUB_BENCH_IDLE_S=3600 watches them for an hour.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import time
import uuid
from typing import Any

from codehub.adapters.kubernetes.cluster import Cluster
from codehub.adapters.kubernetes.manifests import InstancePod, PodOptions, instance_pod

_WATCHED = 1000
_AT_ONCE = 100
_ROUNDS = 4  # in turn with kubectl: the first also opens the connections
_IDLE_S = float(os.environ.get("CODEHUB_BENCH_IDLE_S", "30"))


def measure() -> list[dict[str, object]]:
    if not os.environ.get("CODEHUB_TEST_KUBERNETES"):
        return [{"what": "left out: run it by scripts/kubernetes/exec.sh", "value": 0, "unit": ""}]
    namespace = f"bench-{uuid.uuid4().hex[:8]}"
    _kubectl("create", "namespace", namespace)
    try:
        return asyncio.run(_measure(namespace))
    finally:
        _kubectl("delete", "namespace", namespace, "--wait=false")


def _kubectl(*arguments: str, given: str | None = None) -> None:
    subprocess.run(["kubectl", *arguments], check=True, capture_output=True, text=True, input=given)


def _pod(installation: str, number: int, name: str) -> dict[str, Any]:
    env = {"HOME": "/home/coder", "CODEHUB_WORKSPACE_ID": f"w{number}"}
    what = InstancePod(
        name, installation, f"w{number}", "image:1", 8080, env, "claim", str(uuid.UUID(int=1)), "digest"
    )
    made = instance_pod(what, PodOptions())
    made["spec"]["schedulerName"] = "nobody"
    del made["metadata"]["ownerReferences"]  # of a claim that is not there: the garbage collector would remove it
    return made


async def _measure(namespace: str) -> list[dict[str, object]]:
    from testing.codehub.kubernetes import admin_client

    cluster = Cluster(admin_client(namespace), f"bench-{uuid.uuid4()}")
    try:
        took: list[float] = []

        async def create(number: int, slots: asyncio.Semaphore) -> None:
            body = _pod(cluster.installation_id, number, f"ours-{number}")
            async with slots:
                began = time.perf_counter()
                await cluster.client.create(cluster.pods_path, body)
                took.append(time.perf_counter() - began)

        slots = asyncio.Semaphore(32)  # COORDINATOR_MAX_PARALLEL
        ours_s, kubectl_s = [], []
        for first in range(0, _ROUNDS * _AT_ONCE, _AT_ONCE):
            began = time.perf_counter()
            await asyncio.gather(*(create(number, slots) for number in range(first, first + _AT_ONCE)))
            ours_s.append(time.perf_counter() - began)
            theirs = [_pod("kubectl", number, f"theirs-{number}") for number in range(first, first + _AT_ONCE)]
            given = json.dumps({"apiVersion": "v1", "kind": "List", "items": theirs})
            began = time.perf_counter()
            await asyncio.to_thread(_kubectl, "create", "-n", namespace, "-f", "-", given=given)
            kubectl_s.append(time.perf_counter() - began)
        await asyncio.gather(*(create(number, slots) for number in range(_ROUNDS * _AT_ONCE, _WATCHED)))
        spent = time.process_time()
        began = time.perf_counter()
        assert len(await cluster.pods.objects()) == _WATCHED
        listed_s, decoded_s = time.perf_counter() - began, time.process_time() - spent
        assert not await cluster.claims.objects()  # watched too, as by every part of CodeHub
        spent = time.process_time()
        await asyncio.sleep(_IDLE_S)
        idle = (time.process_time() - spent) / _IDLE_S
        assert len(await cluster.pods.objects()) == _WATCHED  # still trusted
        return [
            {
                "what": f"100 pods created at once, best of {_ROUNDS}",
                "value": min(ours_s),
                "unit": "s",
                "peer": "kubectl create",
                "ratio": min(kubectl_s) / min(ours_s),
            },
            {
                "what": "one create, p99 with 32 at once",
                "value": sorted(took)[int(len(took) * 0.99)] * 1000,
                "unit": "ms",
            },
            {"what": "1,000 pods: first list", "value": listed_s, "unit": "s"},
            {"what": "1,000 pods: CPU of that list", "value": decoded_s, "unit": "s"},
            {"what": "1,000 pods watched, idle", "value": idle * 100, "unit": "% of a core", "floor": 5},
            {
                "what": f"lists again in those {_IDLE_S:g} s",
                "value": cluster.pods.lists + cluster.claims.lists - 2,
                "unit": "",
                "floor": 0,
            },
        ]
    finally:
        await cluster.close()
