"""Attacks from inside a Pod of the real node, whose network enforces no NetworkPolicy, and against archive Jobs."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import stat
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from codehub.adapters.kubernetes import transfer_server
from codehub.adapters.kubernetes.cluster import Cluster
from codehub.adapters.kubernetes.manifests import OPERATION, labels
from codehub.adapters.kubernetes.objects import ROLE_TRANSFER
from codehub.adapters.kubernetes.preflight import probe_pod
from codehub.adapters.kubernetes.transfer import TransferJobs, job_name, operation_label
from codehub.adapters.kubernetes.transfer_client import Transfer
from codehub.adapters.objectstore.store import Store
from codehub.domain.errors import CodeHubError
from codehub.ports.fence import ignore_progress, no_fence
from testing.codehub.contracts.homes import key
from testing.codehub.kubernetes import IMAGE, SMALL, TIMEOUT_S, Node, PvcWorld, admin_client, pvc_world
from testing.codehub.kubernetes_stack import Beside
from testing.ports import free_port

pytestmark = [pytest.mark.needs("kubernetes", "root"), pytest.mark.timeout(900)]
# Run inside a workspace: what it finds that could be a credential.
_SPY = """
import json, os
paths = [path for path in ("/var/run/secrets/kubernetes.io", "/run/secrets/kubernetes.io") if os.path.exists(path)]
ours = ("AWS_", "CODEHUB_DATABASE", "CODEHUB_REDIS", "KUBECONFIG")
print(json.dumps([paths, [name for name in os.environ if name.startswith(ours)]]))
"""
_FORGED = """
from pathlib import Path
from codehub.adapters.kubernetes.transfer_server import serve
serve("archive", Path("/tmp"), "forged")
"""


@pytest.fixture
def world(cluster: Cluster, tmp_path: Path, node: Node) -> PvcWorld:
    return pvc_world(cluster, Store((tmp_path / "archives").as_uri()))


def test_a_workspace_has_no_credentials_and_is_anonymous_to_the_api_server(node: Node, beside: Beside) -> None:
    walk = beside.walk
    with walk.signed_in() as client:
        workspace_id = walk.create(client, "tiny")
        walk.reach(client, workspace_id, "RUNNING")
        command = ["python3", "-c", _SPY]
        answer = client.post(f"/api/v1/workspaces/{workspace_id}/exec", json={"command": command})
        assert answer.status_code == 200, answer.text
        assert json.loads(answer.json()["stdout"]) == [[], []], answer.text
    with httpx.Client(base_url=admin_client(beside.namespace).access.server, verify=False, trust_env=False) as anyone:
        pods = f"/api/v1/namespaces/{beside.namespace}/pods"
        for path in (pods, pods.replace("pods", "secrets"), "/api/v1/nodes"):
            assert anyone.get(path).status_code == 403, path
        (name,) = beside.objects(node, workspace_id)["Pod"]
        assert anyone.post(f"{pods}/{name}/exec?command=id").status_code == 403


async def test_a_transfers_secret_opens_nothing_else_and_nothing_after_its_end(world: PvcWorld) -> None:
    jobs, transfers = TransferJobs(world.cluster, IMAGE, SMALL), []
    for number in (1, 2):
        await world.homes.provision(key(number), f"inc-{number}", no_fence)
        await world.write(key(number), {"note": b"of %d" % number})
        (claim,) = await world.cluster.home_claims(key(number).workspace_id)
        transfers.append(
            await jobs.open(key(number), claim, "op", "archive", ignore_progress, no_fence, read_only=True)
        )
    mine, other = transfers
    assert mine.secret != other.secret
    async with httpx.AsyncClient(trust_env=False, timeout=60) as client:
        stolen = {"authorization": f"Bearer {mine.secret}"}
        for path in ("/archive", "/result"):
            assert (await client.get(other.base_url + path, headers=stolen)).status_code == 401
            assert (await client.get(mine.base_url + path)).status_code == 401
        assert (await client.post(f"{other.base_url}/finish", headers=stolen)).status_code == 401
        # An archive's Job does not write into the home, not even for whom it serves.
        assert (await client.put(f"{mine.base_url}/restore", headers=stolen, content=b"")).status_code == 404
        assert (await client.get(f"{mine.base_url}/archive", headers=stolen)).status_code == 200
        await mine.finish()
        assert await world.cluster.pods.wait_until(
            lambda: all(pod.has_ended for pod in world.cluster.pods.known_of(key(1).workspace_id)), TIMEOUT_S
        ), "it ends with its operation"
        with pytest.raises(httpx.HTTPError):
            await client.get(f"{mine.base_url}/archive", headers=stolen)
    for number in (1, 2):
        await world.homes.purge(key(number), no_fence)


async def test_a_pod_with_our_labels_is_not_taken_for_the_jobs_own(world: PvcWorld, node: Node) -> None:
    """It answers as a transfer does, and would get the home that is to be restored."""
    await world.homes.provision(key(), "inc-1", no_fence)
    await world.write(key(), {"note": b"private"})
    cluster, workspace_id = world.cluster, key().workspace_id
    forged = probe_pod(IMAGE, SMALL)
    forged["metadata"]["name"] = "forged"
    marks = labels(cluster.installation_id, workspace_id, ROLE_TRANSFER) | {OPERATION: operation_label("op")}
    forged["metadata"]["labels"] = marks
    forged["spec"]["containers"][0]["command"] = ["python3", "-c", _FORGED]
    await cluster.client.create(cluster.pods_path, forged)
    await cluster.pods.objects()
    assert await cluster.pods.wait_until(
        lambda: any(pod.is_running and pod.ip for pod in cluster.pods.known_of(workspace_id)), TIMEOUT_S
    )
    (claim,) = await cluster.home_claims(workspace_id)
    jobs = TransferJobs(cluster, IMAGE, SMALL)
    opened = await jobs.open(key(), claim, "op", "archive", ignore_progress, no_fence, read_only=True)
    # Its pods' names begin with the Job's, of which the controller keeps 58 characters.
    assert opened.pod.startswith(job_name(workspace_id, "op")[:58])
    await jobs.remove_all(workspace_id, no_fence)


async def test_who_took_over_a_jobs_address_cannot_pass_off_an_archive_of_their_own(
    world: PvcWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The Job's pod ended, and its address is another workspace's, which answers as a transfer does.

    It even has the secret: the coordinator sends it. Its archive would be kept, and the home that it stands for removed.
    """
    ctx = await world.homes.provision(key(), "inc-1", no_fence)
    await world.write(key(), {"note": b"the work of a week"})
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs/note").write_text("forged")
    opened, port = TransferJobs.open, free_port()

    async def taken_over(self: TransferJobs, *arguments: Any, **options: Any) -> Transfer:
        real = await opened(self, *arguments, **options)
        path = f"{world.cluster.pods_path}/{real.pod}"
        assert await world.cluster.client.delete(path, real.uid, grace_s=0)
        serves = ("archive", tmp_path / "theirs", real.secret, port)
        threading.Thread(target=transfer_server.serve, args=serves, daemon=True).start()
        await until_it_listens(port)
        return replace(real, base_url=f"http://127.0.0.1:{port}")

    monkeypatch.setattr(transfer_server, "_TERMINATION_LOG", tmp_path / "log")
    with monkeypatch.context() as patched:
        patched.setattr(TransferJobs, "open", taken_over)
        with pytest.raises(CodeHubError, match="does not confirm what was transferred"):
            await world.homes.archive(key(), ctx, "op-1", ignore_progress, no_fence)
    receipt = await world.homes.archive(key(), ctx, "op-1", ignore_progress, no_fence)
    await world.homes.deprovision(key(), ctx, no_fence)
    await world.homes.restore(key(), receipt.archive_key, "inc-2", ignore_progress, no_fence)
    assert await world.read(key()) == {"note": b"the work of a week"}
    await world.homes.purge(key(), no_fence)


async def until_it_listens(port: int) -> None:
    async with asyncio.timeout(TIMEOUT_S), httpx.AsyncClient(trust_env=False) as client:
        while True:
            with contextlib.suppress(httpx.ConnectError):
                assert (await client.get(f"http://127.0.0.1:{port}/")).status_code == 401
                return
            await asyncio.sleep(0.05)


async def test_a_hostile_home_is_archived_and_restored_without_leaving_it(world: PvcWorld) -> None:
    ctx = await world.homes.provision(key(), "inc-1", no_fence)
    base = await world.bind(key())
    fill_with_traps(base)
    receipt = await world.homes.archive(key(), ctx, "op-1", ignore_progress, no_fence)
    assert receipt.bytes < 1 << 20, "nothing behind a link, and no hole of a sparse file, was read"
    await world.homes.deprovision(key(), ctx, no_fence)
    await world.homes.restore(key(), receipt.archive_key, "inc-2", ignore_progress, no_fence)
    restored = await world.files(key())
    assert restored is not None
    assert restored != base
    assert os.readlink(restored / "passwd") == "/etc/passwd"
    assert os.readlink(restored / "everything") == "/"
    assert (restored / "escape").is_symlink()
    assert (restored / "sparse").stat().st_size == 1 << 40
    assert (restored / "first").stat().st_ino == (restored / "second").stat().st_ino
    assert stat.S_ISFIFO((restored / "fifo").stat().st_mode)
    assert not (restored / "device").exists()
    assert os.fsencode("odd\n\x1b[31m") + b"\xff" in os.listdir(os.fsencode(restored))
    assert sum(1 for _ in (restored / "d").rglob("*")) == 149, "the whole depth"
    owners = {(path.lstat().st_uid, path.lstat().st_gid) for path in restored.rglob("*")}
    assert owners == {(1000, 1000)}
    await world.homes.purge(key(), no_fence)


def fill_with_traps(base: Path) -> None:
    (base / "passwd").symlink_to("/etc/passwd")
    (base / "everything").symlink_to("/")
    (base / "escape").symlink_to("../../../../../etc")
    with (base / "sparse").open("wb") as file:
        file.truncate(1 << 40)
    (base / "first").write_bytes(b"one file, two names")
    (base / "second").hardlink_to(base / "first")
    os.mkfifo(base / "fifo")
    os.mknod(base / "device", stat.S_IFCHR | 0o666, os.makedev(1, 5))  # /dev/zero: reading it does not end
    with socket.socket(socket.AF_UNIX) as server:
        here = os.getcwd()
        os.chdir(base)  # a socket's path is at most 108 bytes
        try:
            server.bind("socket")
        finally:
            os.chdir(here)
    Path(os.fsdecode(os.fsencode(base) + b"/odd\n\x1b[31m\xff")).write_bytes(b"")
    deep = base
    for _ in range(150):
        deep = deep / "d"
        deep.mkdir()
    for path in base.rglob("*"):
        os.chown(path, 1000, 1000, follow_symlinks=False)


async def test_a_job_of_our_name_that_is_not_ours_is_left_alone(world: PvcWorld, cluster: Cluster) -> None:
    ctx = await world.homes.provision(key(), "inc-1", no_fence)
    await world.write(key(), {"note": b"private"})
    name = job_name(key().workspace_id, "op-1")
    pod = probe_pod(IMAGE, SMALL)
    theirs = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "labels": labels("another", key().workspace_id, ROLE_TRANSFER)},
        "spec": {"template": {"spec": {**pod["spec"], "restartPolicy": "Never"}}},
    }
    made = await cluster.client.create(cluster.jobs_path, theirs)
    with pytest.raises(CodeHubError, match="belongs to another installation"):
        await world.homes.archive(key(), ctx, "op-1", ignore_progress, no_fence)
    found = await cluster.client.get(f"{cluster.jobs_path}/{name}")
    assert found is not None
    assert found["metadata"]["uid"] == made["metadata"]["uid"]
