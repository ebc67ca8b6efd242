"""Parts of the node that go away while a workspace runs, a node that is lost, and requests that arrive too late."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from codehub.adapters.kubernetes.cluster import Cluster
from codehub.adapters.kubernetes.homes import PvcHomes
from codehub.adapters.kubernetes.instances import KubernetesInstances
from codehub.adapters.kubernetes.transfer import TransferJobs
from codehub.adapters.kubernetes.transfer_client import Transfer
from codehub.adapters.objectstore.store import Store
from codehub.domain.errors import CodeHubError, FenceLost, Transient
from codehub.domain.model import HomeCtx
from codehub.domain.profiles import AppProfile
from codehub.ports.fence import ignore_progress, no_fence
from codehub.ports.homes import HomeState
from codehub.ports.instances import InstanceSpec
from testing.codehub.contracts.homes import FILES, key
from testing.codehub.contracts.instances import until
from testing.codehub.kubernetes import IMAGE, SMALL, TIMEOUT_S, Node, PvcWorld, pvc_world

pytestmark = [pytest.mark.needs("kubernetes", "root"), pytest.mark.timeout(900)]
PROFILE = AppProfile(name="tiny", image=IMAGE, health_path="/healthz")
HOME = key()


@pytest.fixture
async def world(node: Node, cluster: Cluster, tmp_path: Path) -> PvcWorld:
    return pvc_world(cluster, Store((tmp_path / "archives").as_uri()))


async def running(world: PvcWorld) -> KubernetesInstances:
    instances = KubernetesInstances(world.cluster, SMALL, gone_timeout_s=5.0)
    await world.homes.provision(HOME, "inc-1", no_fence)
    spec = InstanceSpec(HOME.workspace_id, IMAGE, PROFILE, world.homes.mount(HOME))
    await instances.start(spec, ignore_progress, no_fence)
    await until(lambda: instances.probe(HOME.workspace_id, PROFILE), "it answers")
    return instances


async def test_a_workspace_goes_on_while_kubelet_and_containerd_are_away(world: PvcWorld, node: Node) -> None:
    instances = await running(world)
    before = await instances.status(HOME.workspace_id)
    await asyncio.to_thread(node.program, "kill", "kubelet")
    await asyncio.to_thread(node.program, "kill", "containerd")
    try:
        assert await instances.probe(HOME.workspace_id, PROFILE), "its processes are not theirs"
    finally:
        await asyncio.to_thread(node.program, "start", "containerd")
        await asyncio.to_thread(node.program, "start", "kubelet")
    await asyncio.to_thread(node.wait_ready)

    async def unchanged() -> bool:
        return await instances.status(HOME.workspace_id) == before

    await until(unchanged, "it is the same instance, also if the node counted as lost for a moment")
    assert await instances.probe(HOME.workspace_id, PROFILE)
    await KubernetesInstances(world.cluster, SMALL).delete(HOME.workspace_id, no_fence)


async def test_a_lost_node_makes_its_workspace_unknown_and_only_its_taint_releases_it(
    world: PvcWorld, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("codehub.adapters.kubernetes.transfer._GONE_TIMEOUT_S", 5.0)
    instances, jobs, other = await running(world), TransferJobs(world.cluster, IMAGE, SMALL), key(2)
    await world.homes.provision(other, "inc-1", no_fence)
    await world.write(other, FILES)
    (claim,) = await world.cluster.home_claims(other.workspace_id)
    await jobs.open(other, claim, "op", "archive", ignore_progress, no_fence, read_only=True)
    await asyncio.to_thread(node.program, "kill", "kubelet")
    try:

        async def lost() -> bool:
            return bool((await instances.status(HOME.workspace_id)).unknown)

        await until(lost, "the node's controller says that it does not answer")
        status = await instances.status(HOME.workspace_id)
        assert "the node node1 does not answer since" in status.unknown
        assert not status.running
        assert status.exists
        with pytest.raises(Transient, match="the node node1 does not answer"):
            await instances.delete(HOME.workspace_id, no_fence)
        pods = await world.cluster.instance_pods(HOME.workspace_id)
        assert [pod.meta.deleting for pod in pods] == [True], "asked to go, and not forced"
        for _ in range(2):  # at first its Job is there too
            with pytest.raises(Transient, match="the node node1 does not answer"):
                await jobs.remove_all(other.workspace_id, no_fence)
        await asyncio.to_thread(
            node.kubectl, "taint", "node", "node1", "node.kubernetes.io/out-of-service=nodeshutdown:NoExecute"
        )
        await instances.delete(HOME.workspace_id, no_fence)
        assert await world.cluster.instance_pods(HOME.workspace_id) == []
        await world.homes.purge(other, no_fence)
        assert world.cluster.pods.known_of(other.workspace_id) == []
    finally:
        await asyncio.to_thread(
            node.kubectl, "taint", "node", "node1", "node.kubernetes.io/out-of-service-", check=False
        )
        await asyncio.to_thread(node.program, "start", "kubelet")
        await asyncio.to_thread(node.wait_ready)


async def test_a_late_removal_of_an_old_incarnation_leaves_the_new_one_alone(world: PvcWorld) -> None:
    ctx = await world.homes.provision(HOME, "inc-1", no_fence)
    await world.write(HOME, FILES)
    old = await world.homes._claims(HOME)
    receipt = await world.homes.archive(HOME, ctx, "op-1", ignore_progress, no_fence)
    await world.homes.deprovision(HOME, ctx, no_fence)
    restored = await world.homes.restore(HOME, receipt.archive_key, "inc-2", ignore_progress, no_fence)
    # What a leader that froze after its last fence sends when it wakes: for the claim and for the same name.
    await world.homes._remove(old, no_fence)
    new = await world.homes._claims(HOME)
    assert not await world.cluster.client.delete(f"{world.cluster.claims_path}/{new[0].meta.name}", old[0].meta.uid)
    with pytest.raises(FenceLost):
        await world.homes.deprovision(HOME, HomeCtx("inc-1"), no_fence)
    with pytest.raises(FenceLost):
        await world.homes._mark(old[0], no_fence, "provision")
    assert (await world.homes.status(HOME)).ctx == restored
    assert await world.read(HOME) == FILES


async def test_a_late_second_claim_does_not_take_the_place_of_the_first(world: PvcWorld) -> None:
    await world.homes.provision(HOME, "inc-1", no_fence)
    await world.write(HOME, FILES)
    late: PvcHomes = world.homes
    claim = await late._make(HOME, HomeCtx("inc-late"))
    await late._mark(claim, no_fence, "provision")
    status = await world.homes.status(HOME)
    assert (status.state, status.ctx) == (HomeState.COMPLETE, HomeCtx("inc-1"))
    assert await world.homes.provision(HOME, "inc-3", no_fence) == HomeCtx("inc-1")


async def test_a_transfer_pod_that_is_killed_fails_the_attempt_and_the_next_one_succeeds(
    world: PvcWorld, node: Node
) -> None:
    ctx = await world.homes.provision(HOME, "inc-1", no_fence)
    await world.write(HOME, {**FILES, "large": b"x" * (4 << 20)})
    failed = False

    async def kill() -> None:
        nonlocal failed
        pods = world.cluster.pods
        await pods.objects()
        assert await pods.wait_until(
            lambda: any(pod.is_running for pod in pods.known_of(HOME.workspace_id)), TIMEOUT_S
        )
        pod = next(pod for pod in pods.known_of(HOME.workspace_id) if pod.is_running)
        raw = await world.cluster.client.get(f"{world.cluster.pods_path}/{pod.meta.name}")
        assert raw is not None
        container = raw["status"]["containerStatuses"][0]["containerID"].removeprefix("containerd://")
        await asyncio.to_thread(node.ctr, "task", "kill", "-s", "KILL", container)
        failed = True

    killer = asyncio.create_task(kill())
    receipt = None
    for _ in range(4):
        try:
            receipt = await world.homes.archive(HOME, ctx, "op-1", ignore_progress, no_fence)
        except CodeHubError:
            continue
        break
    await killer
    assert failed
    assert receipt is not None
    await world.homes.deprovision(HOME, ctx, no_fence)
    await world.homes.restore(HOME, receipt.archive_key, "inc-2", ignore_progress, no_fence)
    assert (await world.read(HOME))["large"] == b"x" * (4 << 20)


async def test_a_request_to_end_that_is_lost_does_not_cost_the_transfer(
    world: PvcWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    ctx = await world.homes.provision(HOME, "inc-1", no_fence)
    await world.write(HOME, FILES)
    finish, asked = Transfer.finish, 0

    async def lost_at_first(self: Transfer) -> None:
        nonlocal asked
        asked += 1
        if asked > 1:
            await finish(self)

    monkeypatch.setattr(Transfer, "finish", lost_at_first)
    # Asked again after 3 s, and as long in all as always.
    monkeypatch.setattr("codehub.adapters.kubernetes.transfer._FINISH_TRIES", 60)
    receipt = await world.homes.archive(HOME, ctx, "op-1", ignore_progress, no_fence)
    assert asked > 1
    await world.homes.deprovision(HOME, ctx, no_fence)
    await world.homes.restore(HOME, receipt.archive_key, "inc-2", ignore_progress, no_fence)
    assert await world.read(HOME) == FILES
    await world.homes.purge(HOME, no_fence)
