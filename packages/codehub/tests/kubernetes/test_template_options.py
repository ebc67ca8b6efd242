"""A template's Kubernetes options on the real node: each is in force, and what they ask for in vain is reported."""

from __future__ import annotations

import contextlib
import json
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from codehub.adapters.kubernetes.cluster import Cluster
from codehub.adapters.kubernetes.errors import Forbidden
from codehub.adapters.kubernetes.instances import KubernetesInstances
from codehub.adapters.objectstore.store import Store
from codehub.domain.errors import Transient
from codehub.domain.profiles import AppProfile
from codehub.domain.template_options import KubernetesOptions, Size, Toleration
from codehub.ports.fence import ignore_progress, no_fence
from codehub.ports.instances import InstanceSpec
from testing.codehub.contracts.homes import key
from testing.codehub.contracts.instances import until
from testing.codehub.kubernetes import IMAGE, SMALL, Node, pvc_world

pytestmark = [pytest.mark.needs("kubernetes", "root"), pytest.mark.timeout(900)]
HOME = key()
NAME = f"codehub-test-{uuid.uuid4().hex[:8]}"
POOL, ONLY, DEVICE = "codehub-test.example/pool", "codehub-test.example/only", "codehub-test.example/gpu"
AFFINITY = {
    "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchExpressions": [{"key": POOL, "operator": "In", "values": [NAME]}]}]
        }
    }
}
OPTIONS = KubernetesOptions(
    runtime_class=NAME,
    priority_class=NAME,
    node_selector={POOL: NAME},
    gpus={DEVICE: 1},
    tolerations=(Toleration(ONLY, "Equal", NAME, "NoSchedule"),),
    affinity=json.dumps(AFFINITY),
)


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
            wrong = replace(OPTIONS, priority_class="no-such")
            with pytest.raises(Forbidden, match=r"an admission rule .* no PriorityClass with name no-such"):
                await instances.start(replace(spec, kubernetes=wrong), ignore_progress, no_fence)
        finally:
            await set_devices(cluster, None)
