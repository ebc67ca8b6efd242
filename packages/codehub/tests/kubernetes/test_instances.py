"""Workspaces as Pods of a real node: the contract, and what a pod is allowed."""

from __future__ import annotations

import asyncio
import uuid
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType

import httpx
import pytest

from codehub.adapters.kubernetes.cluster import Cluster
from codehub.adapters.kubernetes.instances import KubernetesInstances
from codehub.adapters.objectstore.store import Store
from codehub.domain.errors import ImagePullFailed
from codehub.domain.model import Progress
from codehub.domain.profiles import AppProfile
from codehub.ports.fence import ignore_progress, no_fence
from codehub.ports.homes import HomeKey
from codehub.ports.instances import ABSENT, InstanceSpec
from testing.codehub.contracts.instances import InstancesContract, started, until, wid
from testing.codehub.kubernetes import IMAGE, SMALL, Node, PvcWorld, admin_client, pvc_world

pytestmark = [pytest.mark.needs("kubernetes", "root"), pytest.mark.timeout(900)]


@dataclass(frozen=True)
class PodWorld:
    node: Node
    cluster: Cluster
    instances: KubernetesInstances
    homes: PvcWorld

    async def spec(self, workspace_id: str, variant: str = "a") -> InstanceSpec:
        home = HomeKey(workspace_id, f"users/ada/workspaces/{workspace_id}/home")
        await self.homes.homes.provision(home, f"inc-{uuid.uuid4().hex[:6]}", no_fence)
        profile = AppProfile(
            name="tiny",
            image=IMAGE,
            health_path="/healthz",
            env=MappingProxyType({"VARIANT": variant, "T": "{secret}"}),
            secret_header="X-Secret: {secret}",
        )
        return InstanceSpec(workspace_id, IMAGE, profile, self.homes.homes.mount(home))

    async def crash(self, workspace_id: str) -> None:
        pods = await self.cluster.instance_pods(workspace_id)
        raw = await self.cluster.client.get(f"{self.cluster.pods_path}/{pods[-1].meta.name}")
        assert raw is not None
        container = raw["status"]["containerStatuses"][0]["containerID"].removeprefix("containerd://")
        await asyncio.to_thread(self.node.ctr, "task", "kill", "-s", "KILL", container)

    async def ask(self, workspace_id: str, command: str) -> str:
        upstream = await self.instances.resolve_upstream(workspace_id)
        assert upstream is not None
        async with httpx.AsyncClient(timeout=120, trust_env=False) as client:
            return (await client.post(f"http://{upstream.host}:{upstream.port}/run", content=command)).text


@pytest.fixture
async def pods(node: Node, cluster: Cluster, tmp_path: Path) -> PodWorld:
    homes = pvc_world(cluster, Store((tmp_path / "archives").as_uri()))
    return PodWorld(node, cluster, KubernetesInstances(cluster, SMALL), homes)


class TestKubernetes(InstancesContract):
    @pytest.fixture
    def world(self, pods: PodWorld) -> PodWorld:
        return pods


async def test_a_start_with_the_helper_is_one_write_and_a_replacement_two(pods: PodWorld) -> None:
    instances = KubernetesInstances(pods.cluster, SMALL, helper_image=IMAGE)
    spec = await pods.spec(wid())
    for replaces, writes in ((False, 1), (True, 2)):
        before = pods.cluster.client.writes
        await instances.start(spec, ignore_progress, no_fence, replace=replaces)
        assert pods.cluster.client.writes - before == writes
        (pod,) = [one for one in await pods.cluster.instance_pods(wid()) if not one.meta.deleting]
        raw = await pods.cluster.client.get(f"{pods.cluster.pods_path}/{pod.meta.name}")
        assert raw is not None
        assert [one["name"] for one in raw["spec"]["initContainers"]] == ["helper", "users"]


async def test_a_pod_is_restricted(pods: PodWorld) -> None:
    await started(pods)
    pod = (await pods.cluster.instance_pods(wid()))[0]
    raw = await pods.cluster.client.get(f"{pods.cluster.pods_path}/{pod.meta.name}")
    assert raw is not None
    assert pod.meta.name.startswith(f"codehub-ws-{wid()}-")
    assert raw["spec"]["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert raw["spec"]["securityContext"]["fsGroupChangePolicy"] == "OnRootMismatch"
    assert raw["spec"]["containers"][0]["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert raw["spec"]["automountServiceAccountToken"] is False
    said = await pods.ask(wid(), "id -u; echo $HOME; pwd; echo mine > mine; cat mine; ls /var/run/secrets 2>&1")
    assert said.split()[:4] == ["1000", "/home/coder", "/home/coder", "mine"]
    assert "No such file" in said
    assert "NoNewPrivs:\t1" in await pods.ask(wid(), "cat /proc/self/status")


async def test_a_missing_image_fails_at_once_in_the_kubelets_words_and_leaves_nothing(pods: PodWorld) -> None:
    spec = await pods.spec(wid())
    missing = replace(spec, image="127.0.0.1:9/team/none:1")
    with pytest.raises(ImagePullFailed, match=r"ErrImagePull|ImagePullBackOff"):
        await pods.instances.start(missing, ignore_progress, no_fence)
    assert await pods.instances.status(wid()) == ABSENT


async def test_what_cannot_be_scheduled_is_reported_at_once_in_the_schedulers_words(pods: PodWorld) -> None:
    greedy = KubernetesInstances(
        pods.cluster, replace(SMALL, cpu_request="900", cpu_limit="900"), scheduling_timeout_s=2.0
    )
    seen: list[Progress] = []
    spec = await pods.spec(wid())
    with pytest.raises(Exception, match="Insufficient cpu"):
        await greedy.start(spec, seen.append, no_fence)
    assert any("Insufficient cpu" in one.step for one in seen)
    status = await greedy.status(wid())
    assert status.exists
    assert not status.running
    await greedy.delete(wid(), no_fence)


async def test_out_of_memory_is_the_exit_reason(pods: PodWorld) -> None:
    spec = await pods.spec(wid())
    greedy = replace(spec, profile=replace(spec.profile, env=MappingProxyType({"EAT": "all of it"})))
    await pods.instances.start(greedy, ignore_progress, no_fence)

    async def ended() -> bool:
        return (await pods.instances.status(wid())).exit_reason is not None

    await until(ended, "it is seen to end")
    said = (await pods.instances.status(wid())).exit_reason
    assert said is not None
    assert said.startswith("OOMKilled; raise its memory")


async def test_two_installations_in_one_namespace_do_not_see_each_other(pods: PodWorld, namespace: str) -> None:
    mine = await started(pods)
    other = Cluster(admin_client(namespace), f"test-{uuid.uuid4()}")
    try:
        instances = KubernetesInstances(other, SMALL)
        assert await instances.list_all() == {}
        await instances.delete(wid(), no_fence)
        assert await pods.instances.status(wid()) == mine
    finally:
        await other.close()
