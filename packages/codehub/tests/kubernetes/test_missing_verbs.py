"""A Role that lacks one verb, each in turn: doctor and the start name it, and so does what needs it. Nothing is deleted."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from codehub.adapters.kubernetes.client import ApiClient
from codehub.adapters.kubernetes.cluster import Cluster
from codehub.adapters.kubernetes.homes import ClaimOptions
from codehub.adapters.kubernetes.instances import KubernetesInstances
from codehub.adapters.kubernetes.preflight import PERMISSIONS, check_cluster, unmet_needs
from codehub.adapters.objectstore.store import Store
from codehub.domain.errors import BackendDown, CodeHubError
from codehub.domain.model import HomeCtx
from codehub.domain.profiles import AppProfile
from codehub.ports.fence import ignore_progress, no_fence
from codehub.ports.homes import HomeKey
from codehub.ports.instances import InstanceSpec
from testing.codehub.contracts.homes import FILES, key
from testing.codehub.kubernetes import IMAGE, SMALL, Node, PvcWorld, admin_client, pvc_world
from testing.codehub.kubernetes_accounts import account_token

pytestmark = [pytest.mark.needs("kubernetes", "root"), pytest.mark.timeout(900)]
CLAIMS = ClaimOptions(storage_class="codehub-test", size="10Mi")
PROFILE = AppProfile(name="tiny", image=IMAGE, health_path="/healthz")
EVERY = [
    (f"{resource}/{sub}" if sub else resource, verb) for _, resource, sub, verbs in PERMISSIONS for verb in verbs
]
# Each is asked for by what a workspace lives through, except for those that only unusual situations need: an object of the
# same name that is there already, or events, which add a reason to a start that waits anyway.
SELDOM_NEEDED = {("pods", "get"), ("persistentvolumeclaims", "get"), ("events", "list")}
# Without these nothing is known, so nothing may be decided.
OBSERVED_BY = {(kind, verb) for kind in ("pods", "persistentvolumeclaims") for verb in ("list", "watch")}


@dataclass(frozen=True)
class Before:
    """One workspace that runs, and one that sleeps."""

    running: HomeKey
    asleep: HomeKey
    ctx: HomeCtx


async def start(instances: KubernetesInstances, world: PvcWorld, home: HomeKey) -> None:
    spec = InstanceSpec(home.workspace_id, IMAGE, PROFILE, world.homes.mount(home))
    await instances.start(spec, ignore_progress, no_fence)


@pytest.fixture
async def before(cluster: Cluster, tmp_path: Path) -> AsyncIterator[Before]:
    store = Store((tmp_path / "archives").as_uri())
    world, instances = pvc_world(cluster, store), KubernetesInstances(cluster, SMALL)
    found = Before(key(1), key(2), HomeCtx("inc-1"))
    for home in (found.running, found.asleep):
        await world.homes.provision(home, "inc-1", no_fence)
        await world.write(home, FILES)
    await start(instances, world, found.running)
    yield found
    store.close()


async def live(cluster: Cluster, world: PvcWorld, before: Before) -> None:
    """Everything that a workspace lives through: watched, created, started, read, archived, deleted."""
    instances, new = KubernetesInstances(cluster, SMALL), key(3)
    await instances.list_all()
    await world.homes.list_all()
    ctx = await world.homes.provision(new, "inc-1", no_fence)
    await start(instances, world, new)
    async for _ in instances.logs(new.workspace_id, follow=False):
        pass
    await instances.delete(new.workspace_id, no_fence)
    await world.homes.deprovision(new, ctx, no_fence)
    await world.homes.archive(before.asleep, before.ctx, "op-1", ignore_progress, no_fence)


def uids(node: Node, namespace: str, before: Before) -> set[str]:
    items = json.loads(node.kubectl("get", "pods,pvc", "-n", namespace, "-o", "json"))["items"]
    ours = (before.running.workspace_id, before.asleep.workspace_id)
    return {
        one["metadata"]["uid"]
        for one in items
        if one["metadata"]["labels"]["codehub.dev/workspace"] in ours
        and one["metadata"]["labels"]["codehub.dev/role"] != "transfer"
        and "deletionTimestamp" not in one["metadata"]
    }


@pytest.mark.parametrize(("resource", "verb"), EVERY, ids=[f"{verb} {resource}" for resource, verb in EVERY])
async def test_a_role_without(
    resource: str, verb: str, before: Before, node: Node, namespace: str, cluster: Cluster, tmp_path: Path
) -> None:
    there = uids(node, namespace, before)
    token = await asyncio.to_thread(account_token, node, namespace, resource, verb)
    access = replace(admin_client(namespace).access, client_certificate=None, client_key=None, token=token)
    lacking = Cluster(ApiClient(access), cluster.installation_id)
    store = Store((tmp_path / "other-archives").as_uri())
    try:
        (said,) = [one for one in await check_cluster(lacking.client, IMAGE, CLAIMS) if one.fix]
        assert said.message == f"in {namespace} CodeHub may not: {verb} {resource}"
        assert "role.yaml" in said.fix
        assert [one.message for one in await unmet_needs(lacking.client, CLAIMS)] == [said.message]
        error: CodeHubError | None = None
        try:
            await live(lacking, pvc_world(lacking, store), before)
        except CodeHubError as raised:
            error = raised
        if (resource, verb) in SELDOM_NEEDED:
            assert error is None
        else:
            assert "Check its Role" in str(error)
            assert f'cannot {verb} resource "{resource}"' in str(error)
        assert isinstance(error, BackendDown) == ((resource, verb) in OBSERVED_BY), "then workspaces are Unknown"
        assert uids(node, namespace, before) == there
    finally:
        await lacking.close()
        store.close()
