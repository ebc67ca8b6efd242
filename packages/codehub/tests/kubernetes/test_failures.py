"""What keeps a workspace from running, on the real node: reported at once, in the cluster's own words, with what to do."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import pytest

from codehub.adapters.kubernetes.client import ApiClient
from codehub.adapters.kubernetes.cluster import Cluster
from codehub.adapters.kubernetes.homes import ClaimOptions, PvcHomes
from codehub.adapters.kubernetes.instances import KubernetesInstances
from codehub.adapters.kubernetes.transfer import job_name
from codehub.adapters.objectstore.store import Store
from codehub.domain.errors import BackendDown, OutOfSpace, Transient
from codehub.domain.model import Progress
from codehub.domain.profiles import AppProfile
from codehub.ports.fence import ignore_progress, no_fence
from codehub.ports.instances import InstanceSpec
from testing.codehub.contracts.homes import key
from testing.codehub.contracts.instances import until
from testing.codehub.kubernetes import IMAGE, SMALL, Node, admin_client, pvc_world

pytestmark = [pytest.mark.needs("kubernetes", "root"), pytest.mark.timeout(900)]
HOME = key()
TINY = AppProfile(name="tiny", image=IMAGE, health_path="/healthz")


@pytest.fixture
def homes(node: Node, cluster: Cluster, tmp_path: Path) -> PvcHomes:
    return pvc_world(cluster, Store((tmp_path / "archives").as_uri())).homes


def spec(homes: PvcHomes) -> InstanceSpec:
    return InstanceSpec(HOME.workspace_id, IMAGE, TINY, homes.mount(HOME))


def quota(node: Node, namespace: str, **hard: str) -> None:
    body = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "small"},
        "spec": {"hard": {name.replace("_", "."): amount for name, amount in hard.items()}},
    }
    node.kubectl("create", "-n", namespace, "-f", "-", given=json.dumps(body))


async def test_an_exhausted_quota_names_itself_and_nothing_is_left_behind(
    homes: PvcHomes, node: Node, cluster: Cluster, namespace: str
) -> None:
    await homes.provision(HOME, "inc-1", no_fence)
    quota(node, namespace, pods="0")
    instances = KubernetesInstances(cluster, SMALL, helper_image=IMAGE)

    said: list[str] = []

    async def refused() -> bool:
        try:
            await instances.start(spec(homes), ignore_progress, no_fence)
        except OutOfSpace as error:
            said.append(str(error))
            return True
        await instances.delete(HOME.workspace_id, no_fence)
        return False

    await until(refused, "the quota is in force")
    assert "exceeded quota: small" in said[0]
    assert "Raise the ResourceQuota" in said[0]
    assert not (await instances.status(HOME.workspace_id)).exists


async def test_an_archive_whose_pod_is_refused_says_why_and_ends_when_its_job_fails(
    homes: PvcHomes, node: Node, cluster: Cluster, namespace: str
) -> None:
    ctx = await homes.provision(HOME, "inc-1", no_fence)
    # A claim that no pod ever used is archived without a Job.
    instances = KubernetesInstances(cluster, SMALL, helper_image=IMAGE)
    await instances.start(spec(homes), ignore_progress, no_fence)
    await instances.delete(HOME.workspace_id, no_fence)
    quota(node, namespace, pods="0")
    seen: list[Progress] = []

    async def in_force() -> bool:
        return node.kubectl("get", "quota", "small", "-n", namespace, "-o", "jsonpath={.status.hard.pods}") == "0"

    await until(in_force, "the quota is in force")
    archiving = asyncio.create_task(homes.archive(HOME, ctx, "op-1", seen.append, no_fence))

    async def reported() -> bool:
        assert not archiving.done(), await archiving
        return any("exceeded quota: small" in one.step for one in seen)

    await until(reported, "the Job's event is reported")
    # As a current release does after somebody deleted the pod: the Job fails, and no other pod comes.
    job = f"{cluster.jobs_path}/{job_name(HOME.workspace_id, 'op-1')}"
    failed = {"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded", "message": "too many failures"}
    await cluster.client.patch(f"{job}/status", {"status": {"conditions": [failed]}})
    with pytest.raises(Transient, match="failed: BackoffLimitExceeded: too many failures"):
        await archiving


async def test_every_pod_has_what_a_quota_on_requests_and_limits_asks_for(
    homes: PvcHomes, node: Node, cluster: Cluster, namespace: str
) -> None:
    quota(node, namespace, requests_cpu="2", requests_memory="2Gi", limits_cpu="8", limits_memory="8Gi")
    ctx = await homes.provision(HOME, "inc-1", no_fence)
    instances = KubernetesInstances(cluster, SMALL, helper_image=IMAGE)
    await instances.start(spec(homes), ignore_progress, no_fence)
    await instances.delete(HOME.workspace_id, no_fence)
    await homes.archive(HOME, ctx, "op-1", ignore_progress, no_fence)


async def test_a_claim_that_cannot_be_provisioned_is_reported_while_the_start_waits(
    cluster: Cluster, tmp_path: Path
) -> None:
    wrong = ClaimOptions(storage_class="no-such-class", size="100Mi")
    homes = PvcHomes(cluster, Store((tmp_path / "archives").as_uri()), IMAGE, claims=wrong, pods=SMALL)
    await homes.provision(HOME, "inc-1", no_fence)
    instances = KubernetesInstances(cluster, SMALL)
    seen: list[Progress] = []
    starting = asyncio.create_task(instances.start(spec(homes), seen.append, no_fence))

    async def reported() -> bool:
        assert not starting.done(), starting.exception()
        return any("no-such-class" in one.step and "CODEHUB_K8S_STORAGE_CLASS" in one.step for one in seen)

    await until(reported, "the claim's event is reported")
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting


async def test_an_evicted_workspace_says_why_and_what_to_do(homes: PvcHomes, node: Node, cluster: Cluster) -> None:
    await homes.provision(HOME, "inc-1", no_fence)
    instances = KubernetesInstances(cluster, replace(SMALL, ephemeral_storage="2Mi"))
    profile = replace(TINY, env={"FILL": "/tmp/full"})
    await instances.start(replace(spec(homes), profile=profile), ignore_progress, no_fence)

    async def evicted() -> bool:
        said = (await instances.status(HOME.workspace_id)).exit_reason or ""
        return said.startswith("Evicted: ") and "CODEHUB_K8S_EPHEMERAL_STORAGE" in said

    await until(evicted, "the kubelet evicts it")


async def test_a_namespace_that_does_not_exist_is_named_and_nothing_is_deleted(tmp_path: Path, node: Node) -> None:
    client = admin_client("no-such-namespace")
    cluster = Cluster(client, "test")
    try:
        homes = pvc_world(cluster, Store((tmp_path / "archives").as_uri())).homes
        for call in (cluster.ping(), homes.list_all(), homes.provision(HOME, "inc-1", no_fence)):
            with pytest.raises(BackendDown, match="the namespace no-such-namespace does not exist"):
                await call
        assert client.writes == 0
    finally:
        await cluster.close()


async def test_an_expired_token_is_unknown_for_instances_and_homes_alike(namespace: str, tmp_path: Path) -> None:
    access = replace(admin_client(namespace).access, client_certificate=None, client_key=None, token="expired")
    cluster = Cluster(ApiClient(access), "test")
    try:
        homes = pvc_world(cluster, Store((tmp_path / "archives").as_uri())).homes
        for call in (KubernetesInstances(cluster).list_all(), homes.list_all(), cluster.ping()):
            with pytest.raises(BackendDown, match="Renew the token"):
                await call
        assert cluster.client.writes == 0
    finally:
        await cluster.close()
