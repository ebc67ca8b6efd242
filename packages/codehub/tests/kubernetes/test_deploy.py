"""What deploy/kubernetes ships: manifests that the real API server takes, a Role that is enough, and doctor's answers."""

from __future__ import annotations

import asyncio
import re
import uuid
from dataclasses import replace
from pathlib import Path

import pytest
import structlog
import yaml

from codehub.adapters.kubernetes.backends import KubernetesBackends
from codehub.adapters.kubernetes.client import ApiClient
from codehub.adapters.kubernetes.cluster import Cluster
from codehub.adapters.kubernetes.homes import ClaimOptions
from codehub.adapters.kubernetes.instances import KubernetesInstances
from codehub.adapters.kubernetes.kubeconfig import ClusterAccess
from codehub.adapters.kubernetes.preflight import PERMISSIONS, check_cluster
from codehub.adapters.objectstore.store import Store
from codehub.domain.profiles import AppProfile
from codehub.ports.fence import ignore_progress, no_fence
from codehub.ports.instances import InstanceSpec
from testing.codehub.contracts.homes import FILES, key
from testing.codehub.contracts.instances import until
from testing.codehub.kubernetes import IMAGE, PLAIN_IMAGE, SMALL, TIMEOUT_S, Node, admin_client, pvc_world, rendered
from testing.codehub.kubernetes_accounts import account_token, shipped_role
from testing.codehub.kubernetes_objects import pod_spec
from testing.codehub.pod_security import violations

CLAIMS = ClaimOptions(storage_class="codehub-test", size="10Mi")
pytestmark = [pytest.mark.needs("kubernetes", "root"), pytest.mark.timeout(900)]


def test_the_role_is_what_doctor_asks_for() -> None:
    shipped = {
        (group, resource, verb)
        for rule in shipped_role()["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    required = {
        (group, f"{resource}/{sub}" if sub else resource, verb)
        for group, resource, sub, verbs in PERMISSIONS
        for verb in verbs
    }
    assert shipped == required


def test_the_server_takes_every_object_of_the_trial(node: Node) -> None:
    made = [one for one in rendered("trial") if one["kind"] == "Namespace"]
    node.kubectl("apply", "-f", "-", given=yaml.safe_dump_all(made))
    try:
        said = node.kubectl("apply", "--dry-run=server", "-f", "-", given=yaml.safe_dump_all(rendered("trial")))
    finally:
        for one in made:
            # Waits: while it is being deleted, nothing can be created under its name.
            node.kubectl("delete", "namespace", one["metadata"]["name"], f"--timeout={TIMEOUT_S}s")
    assert "deployment.apps/coordinator created" in said
    assert said.count("server dry run") == len(rendered("trial"))


@pytest.mark.parametrize("overlay", ["trial", "production"])
def test_every_pod_that_is_shipped_is_restricted(overlay: str) -> None:
    pods = [spec for one in rendered(overlay) if (spec := pod_spec(one)) is not None]
    assert len(pods) >= 3
    assert [found for spec in pods for found in violations(spec)] == []


def account(node: Node, namespace: str, without: str = "") -> ClusterAccess:
    """A service account with the shipped rights, signed in by its token."""
    token = account_token(node, namespace, without)
    return replace(admin_client(namespace).access, client_certificate=None, client_key=None, token=token)


async def test_everything_works_with_exactly_the_role_that_is_shipped(
    node: Node, namespace: str, tmp_path: Path
) -> None:
    client = ApiClient(account(node, namespace))
    cluster = Cluster(client, f"test-{uuid.uuid4()}")
    admin = Cluster(admin_client(namespace), cluster.installation_id)
    try:
        world = pvc_world(cluster, Store((tmp_path / "archives").as_uri()))
        files = replace(world, cluster=admin)  # the test's own look at volumes needs more
        instances = KubernetesInstances(cluster, SMALL)
        home = key()
        ctx = await world.homes.provision(home, "inc-1", no_fence)
        await files.write(home, FILES)
        profile = AppProfile(name="tiny", image=IMAGE, health_path="/healthz")
        await instances.start(
            InstanceSpec(home.workspace_id, IMAGE, profile, world.homes.mount(home)), ignore_progress, no_fence
        )
        assert (await instances.status(home.workspace_id)).running

        async def greeted() -> bool:
            return b"hello from" in b"".join([part async for part in instances.logs(home.workspace_id, follow=False)])

        await until(greeted, "its output can be read")
        await instances.delete(home.workspace_id, no_fence)
        receipt = await world.homes.archive(home, ctx, "op-1", ignore_progress, no_fence)
        await world.homes.deprovision(home, ctx, no_fence)
        await world.homes.restore(home, receipt.archive_key, "inc-2", ignore_progress, no_fence)
        assert await files.read(home) == FILES
    finally:
        await admin.close()
        await cluster.close()


async def test_doctor_names_the_verb_that_is_missing(node: Node, namespace: str) -> None:
    client = ApiClient(account(node, namespace, without="persistentvolumeclaims"))
    try:
        found = await check_cluster(client, IMAGE, CLAIMS)
    finally:
        await client.close()
    bad = [one for one in found if one.fix]
    assert len(bad) == 1
    assert "patch persistentvolumeclaims" in bad[0].message
    assert "role.yaml" in bad[0].fix


async def test_a_missing_verb_or_storage_class_is_reported_at_start_too(
    node: Node, namespace: str, cluster: Cluster, tmp_path: Path
) -> None:
    lacking = Cluster(ApiClient(account(node, namespace, without="persistentvolumeclaims")), cluster.installation_id)
    no_class = replace(CLAIMS, storage_class="no-such-class")
    store = Store((tmp_path / "archives").as_uri())
    try:
        for one, claims, said in (
            (lacking, CLAIMS, f"in {namespace} CodeHub may not: get persistentvolumeclaims, list"),
            (cluster, no_class, "there is no storage class 'no-such-class'"),
            (cluster, CLAIMS, ""),
        ):
            homes = pvc_world(one, store).homes
            backends = KubernetesBackends(one, KubernetesInstances(one), homes, claims)
            with structlog.testing.capture_logs() as logged:
                await backends.report_unusable("coordinator")
            assert [entry["error"].startswith(said) and bool(entry["fix"]) for entry in logged] == [True] * bool(said)
    finally:
        await lacking.close()
        store.close()


async def test_doctor_tries_the_network_and_says_that_it_enforces_nothing(node: Node, namespace: str) -> None:
    client = admin_client(namespace)
    try:
        found = {one.part: one for one in await check_cluster(client, IMAGE, CLAIMS)}
        assert found["storage class"].message == "codehub-test"
        assert found["access mode"].message == "ReadWriteOnce"
        assert found["test pod"].fix == found["test volume"].fix == ""
        assert "does not enforce NetworkPolicies" in found["network policy"].message
        assert not found["network policy"].is_fatal
        unknown = replace(CLAIMS, access_mode="ReadWriteOncePod")
        refused = {one.part: one for one in await check_cluster(client, IMAGE, unknown)}
        assert "ReadWriteOnce," in refused["access mode"].fix
        assert "accessModes" in refused["test pod"].message, "the server's own words"
        wrong = replace(CLAIMS, storage_class="no-such-class")
        missing = {one.part: one for one in await check_cluster(client, IMAGE, wrong)}
        assert "codehub-test" in missing["storage class"].fix
        (bad,) = [
            one for one in await check_cluster(client, "127.0.0.1:9/none:1", CLAIMS) if one.is_fatal and one.fix
        ]
        # The second is the kubelet's state while it waits for its next attempt.
        assert re.search("ErrImagePull|ImagePullBackOff", bad.message)
    finally:
        await client.close()


async def test_doctor_tries_the_images_of_workspaces(node: Node, namespace: str) -> None:
    """Without code-server's image no workspace opens, although everything else is fine."""
    node.load_plain_image()
    client = ApiClient(account(node, namespace))
    missing = "127.0.0.1:9/codehub/code-server:1"
    try:
        images = [missing, PLAIN_IMAGE, missing.replace("code-server", "jupyterlab")]
        found = [
            one for one in await check_cluster(client, IMAGE, CLAIMS, None, images) if one.part == "workspace image"
        ]
        # The plain image has no program `true`: it was pulled all the same.
        assert found[1].message == f"{PLAIN_IMAGE} can be pulled"
        assert [bool(one.fix) for one in found] == [True, False, True]
        assert [one.is_fatal for one in found] == [True, False, False], "only the default profile's must be there"
        assert re.search("(ErrImagePull|ImagePullBackOff).*code-server:1", found[0].message)
        assert "ctr -n k8s.io images import" in found[0].fix
        assert "CODEHUB_IMAGE_REGISTRY" in found[0].fix
    finally:
        await client.close()


async def test_doctor_tries_the_storage_class_with_the_role_that_is_shipped(node: Node, namespace: str) -> None:
    """It may not read storage classes, so a claim shows whether its own is any good."""
    client = ApiClient(account(node, namespace))
    try:
        found = {one.part: one for one in await check_cluster(client, IMAGE, CLAIMS)}
        assert found["test volume"].fix == ""
        wrong = await check_cluster(client, IMAGE, replace(CLAIMS, storage_class="no-such-class"))
        (bad,) = [one for one in wrong if one.is_fatal and one.fix]
        assert bad.part == "storage class"
        assert 'storageclass.storage.k8s.io "no-such-class" not found' in bad.message
    finally:
        await client.close()

    async def gone() -> bool:
        listed = await asyncio.to_thread(
            node.kubectl, "get", "pods,persistentvolumeclaims", "-n", namespace, "-o", "name"
        )
        return listed.strip() == ""

    await until(gone, "neither Pods nor claims are left")


async def test_doctor_says_that_a_server_does_not_answer_or_refuses_the_token(namespace: str) -> None:
    access = admin_client(namespace).access
    away = ApiClient(replace(access, server="https://127.0.0.1:9"))
    stranger = ApiClient(replace(access, client_certificate=None, client_key=None, token="expired"))
    try:
        for client, said in ((away, "cannot be reached"), (stranger, "credentials")):
            found = await check_cluster(client, IMAGE, CLAIMS)
            assert len(found) == 1
            assert said in found[0].message
            assert found[0].fix
    finally:
        await away.close()
        await stranger.close()
