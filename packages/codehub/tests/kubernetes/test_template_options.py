"""A template's Kubernetes options on the real node: each is in force, and what they ask for in vain is reported."""

from __future__ import annotations

import asyncio
import contextlib
import json
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from codehub.adapters.kubernetes.cluster import Cluster
from codehub.adapters.kubernetes.errors import Forbidden
from codehub.adapters.kubernetes.homes import PvcHomes
from codehub.adapters.kubernetes.instances import KubernetesInstances
from codehub.adapters.kubernetes.objects import ROLE, ROLE_TRANSFER
from codehub.adapters.objectstore.store import Store
from codehub.domain.errors import Transient
from codehub.domain.model import Progress
from codehub.domain.profiles import AppProfile
from codehub.domain.template_options import KubernetesOptions, Size, Toleration
from codehub.ports.fence import ignore_progress, no_fence
from codehub.ports.instances import InstanceSpec
from testing.codehub.contracts.homes import key
from testing.codehub.contracts.instances import until
from testing.codehub.kubernetes import IMAGE, SMALL, TIMEOUT_S, Node, pvc_world

pytestmark = [pytest.mark.needs("kubernetes", "root"), pytest.mark.timeout(900)]
HOME = key()
NAME = f"codehub-test-{uuid.uuid4().hex[:8]}"
POOL, ONLY, DEVICE = "codehub-test.example/pool", "codehub-test.example/only", "codehub-test.example/gpu"
AFFINITY = {
    "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchExpressions": [{"key": POOL, "operator": "In", "values": [NAME]}]}]
        }
    },
    # Not for transfers: other pods do not matter to them.
    "podAntiAffinity": {
        "preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": 1, "podAffinityTerm": {"topologyKey": POOL, "labelSelector": {"matchLabels": {"a": "b"}}}}
        ]
    },
}
OPTIONS = KubernetesOptions(
    runtime_class=NAME,
    priority_class=NAME,
    node_selector={POOL: NAME},
    gpus={DEVICE: 1},
    tolerations=(Toleration(ONLY, "Equal", NAME, "NoSchedule"),),
    affinity=json.dumps(AFFINITY),
)
NOWHERE = KubernetesOptions(node_selector={POOL: "no-such"})


@pytest.fixture
def classes(node: Node) -> Iterator[None]:
    """A runtime class and a priority class."""
    objects = [
        {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": NAME}, "handler": "runc"},
        {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": NAME},
            "value": 7,
            "globalDefault": False,
        },
    ]
    given = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
    node.kubectl("create", "-f", "-", given=given)
    try:
        yield
    finally:
        node.kubectl("delete", "-f", "-", given=given)


@contextlib.contextmanager
def pool(node: Node) -> Iterator[None]:
    """Make the node one of a pool: labelled, and closed to pods that do not tolerate its taint."""
    node.kubectl("label", "node", "node1", f"{POOL}={NAME}")
    node.kubectl("taint", "node", "node1", f"{ONLY}={NAME}:NoSchedule")
    try:
        yield
    finally:
        node.kubectl("taint", "node", "node1", f"{ONLY}-")
        node.kubectl("label", "node", "node1", f"{POOL}-")


async def set_devices(cluster: Cluster, count: str | None) -> None:
    """Announce a device plug-in's resource, as its plug-in would."""
    await cluster.client.patch("/api/v1/nodes/node1/status", {"status": {"capacity": {DEVICE: count}}})
    if count is None:
        return

    async def allocatable() -> bool:
        found = await cluster.client.get("/api/v1/nodes/node1")
        return found is not None and found["status"]["allocatable"].get(DEVICE) == count

    await until(allocatable, "the kubelet offers the device")


async def transfers_run_where_the_template_may_run(cluster: Cluster, homes: PvcHomes) -> None:
    """Archive and restore the home on a node that only pods with the template's options may use."""
    ctx = (await homes.status(HOME)).ctx
    assert ctx is not None
    home = replace(HOME, kubernetes=OPTIONS)
    archived = asyncio.create_task(homes.archive(home, ctx, "op-1", ignore_progress, no_fence))
    raw = await pod_of_a_job(cluster, archived)
    assert (raw["spec"]["priority"], raw["spec"]["runtimeClassName"]) == (7, NAME)
    assert raw["spec"]["affinity"] == {"nodeAffinity": AFFINITY["nodeAffinity"]}
    receipt = await archived
    await homes.deprovision(home, ctx, no_fence)
    await homes.restore(home, receipt.archive_key, "inc-2", ignore_progress, no_fence)


async def pod_of_a_job(cluster: Cluster, work: asyncio.Task[Any]) -> dict[str, Any]:
    """Return the pod of the Job that does this work, once it is scheduled."""
    selector = {"labelSelector": f"{ROLE}={ROLE_TRANSFER}"}
    while not work.done():
        items, _ = await cluster.client.list_all(cluster.pods_path, selector)
        for item in items:
            if item["spec"].get("nodeName"):
                return item
        await asyncio.sleep(0.05)
    raise AssertionError(f"no pod was scheduled: {work}")


@pytest.mark.usefixtures("classes")
async def test_a_templates_options_decide_where_and_how_its_pods_run(
    node: Node, cluster: Cluster, tmp_path: Path
) -> None:
    homes = pvc_world(cluster, Store((tmp_path / "archives").as_uri())).homes
    await homes.provision(HOME, "inc-1", no_fence)
    profile = AppProfile(name="tiny", image=IMAGE, health_path="/healthz")
    plain = InstanceSpec(HOME.workspace_id, IMAGE, profile, homes.mount(HOME))
    spec = replace(plain, kubernetes=OPTIONS, size=Size(cpus=0.5, memory_bytes=200 << 20))
    hasty = KubernetesInstances(cluster, SMALL, scheduling_timeout_s=2.0)
    with pytest.raises(Transient, match=r"Unschedulable: 0/1 nodes are available"):
        await hasty.start(spec, ignore_progress, no_fence)
    await hasty.delete(HOME.workspace_id, no_fence)

    instances = KubernetesInstances(cluster, SMALL, helper_image=IMAGE)
    with pool(node):
        await set_devices(cluster, "1")
        try:
            with pytest.raises(Transient, match="had taint"):
                await hasty.start(plain, ignore_progress, no_fence)
            await instances.start(spec, ignore_progress, no_fence)
            (pod,) = [one for one in await cluster.instance_pods(HOME.workspace_id) if not one.meta.deleting]
            raw = await cluster.client.get(f"{cluster.pods_path}/{pod.meta.name}")
            assert raw is not None
            assert (raw["spec"]["nodeName"], raw["spec"]["priority"]) == ("node1", 7)
            assert raw["spec"]["runtimeClassName"] == NAME
            assert raw["spec"]["affinity"] == AFFINITY
            limits = raw["spec"]["containers"][0]["resources"]["limits"]
            assert (limits[DEVICE], limits["cpu"], limits["memory"]) == ("1", "500m", str(200 << 20))
            await instances.delete(HOME.workspace_id, no_fence)
            await transfers_run_where_the_template_may_run(cluster, homes)
            wrong = replace(OPTIONS, priority_class="no-such")
            with pytest.raises(Forbidden, match=r"an admission rule .* no PriorityClass with name no-such"):
                await instances.start(replace(spec, kubernetes=wrong), ignore_progress, no_fence)
        finally:
            await set_devices(cluster, None)


@pytest.mark.usefixtures("node")
async def test_a_home_that_no_pod_ever_used_is_archived_where_its_template_fits_no_node(
    cluster: Cluster, tmp_path: Path
) -> None:
    claims = pvc_world(cluster, Store((tmp_path / "archives").as_uri()))
    ctx = await claims.homes.provision(HOME, "inc-1", no_fence)
    home = replace(HOME, kubernetes=NOWHERE)
    receipt = await claims.homes.archive(home, ctx, "op-1", ignore_progress, no_fence)
    await claims.homes.deprovision(home, ctx, no_fence)
    await claims.homes.restore(HOME, receipt.archive_key, "inc-2", ignore_progress, no_fence)
    assert await claims.read(HOME) == {}


@pytest.mark.usefixtures("node")
async def test_a_job_that_waits_for_nodes_is_replaced_once_its_template_is_corrected(
    cluster: Cluster, tmp_path: Path
) -> None:
    claims = pvc_world(cluster, Store((tmp_path / "archives").as_uri()))
    ctx = await claims.homes.provision(HOME, "inc-1", no_fence)
    await claims.write(HOME, {"kept": b"for later"})
    waits = asyncio.Event()

    def report(progress: Progress) -> None:
        if "Unschedulable" in progress.step or "FailedScheduling" in progress.step:
            waits.set()

    home = replace(HOME, kubernetes=NOWHERE)
    waiting = asyncio.create_task(claims.homes.archive(home, ctx, "op-1", report, no_fence))
    async with asyncio.timeout(TIMEOUT_S):
        await waits.wait()
    waiting.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await waiting
    await claims.homes.archive(HOME, ctx, "op-1", ignore_progress, no_fence)
    await claims.homes.deprovision(HOME, ctx, no_fence)
