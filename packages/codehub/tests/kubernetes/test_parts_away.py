"""Parts of the cluster that go away under an archive and a restore: the home is bit-identical, nothing is left over."""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
from collections.abc import Callable

import pytest

from codehub.adapters.postgres.pool import Database
from codehub.domain.model import DesiredState, Operation, Phase
from testing.codehub.installation import Installation, installation, until
from testing.codehub.kubernetes import Node
from testing.codehub.kubernetes_kills import environment, leftovers, prepare, volume_of
from testing.codehub.trees import differences, fingerprint, make_rich_tree

pytestmark = [pytest.mark.needs("kubernetes", "root"), pytest.mark.timeout(900)]


def transfer_pods(node: Node, namespace: str) -> list[dict[str, object]]:
    raw = node.kubectl("get", "pods", "-n", namespace, "-l", "codehub.dev/role=transfer", "-o", "json", check=False)
    return list(json.loads(raw)["items"]) if raw else []


def container_of(node: Node, namespace: str) -> str:
    """The running container of a transfer; empty when there is none."""
    for pod in transfer_pods(node, namespace):
        for one in pod.get("status", {}).get("containerStatuses") or ():  # type: ignore[attr-defined]
            if "running" in one["state"]:
                return str(one["containerID"]).removeprefix("containerd://")
    return ""


def kill_container(node: Node, namespace: str) -> None:
    if container := container_of(node, namespace):
        # It may have done its work and ended in between.
        with contextlib.suppress(subprocess.CalledProcessError):
            node.ctr("task", "kill", "-s", "KILL", container)


def delete_job(node: Node, namespace: str) -> None:
    node.kubectl("delete", "jobs", "--all", "-n", namespace, "--wait=false")


def restart(*names: str) -> Callable[[Node, str], None]:
    def strike(node: Node, namespace: str) -> None:
        for name in names:
            node.program("kill", name)
        for name in reversed(names):
            node.program("start", name)

    return strike


STRIKES: dict[str, Callable[[Node, str], None]] = {
    "the transfer's container": kill_container,
    "the Job": delete_job,
    "kubelet": restart("kubelet"),
    "containerd": restart("containerd"),
    "etcd": restart("apiserver", "etcd"),
}


async def at_work(here: Installation, node: Node, namespace: str, operation: Operation) -> None:
    """Until the operation's pod is there."""

    async def there() -> bool:
        row = await here.now()
        return row.operation is operation and bool(await asyncio.to_thread(transfer_pods, node, namespace))

    await until(there, f"{operation} is under way")


@pytest.mark.parametrize("what", STRIKES)
async def test_an_archive_and_a_restore_survive_the_loss_of(
    database: Database, redis_url: str, node: Node, namespace: str, what: str
) -> None:
    async with installation(database, redis_url, environment(namespace)) as here:
        prepare(here)
        await here.leads(here.coordinator())
        await here.create(DesiredState.STANDBY)
        await here.reaches(Phase.STANDBY)
        files = volume_of(node, namespace, here.row.id)
        make_rich_tree(files(), owner=(1000, 1000))
        before = fingerprint(files())
        try:
            for operation, desired in (
                (Operation.ARCHIVING, DesiredState.ARCHIVED),
                (Operation.RESTORING, DesiredState.STANDBY),
            ):
                await here.ask(desired)
                await at_work(here, node, namespace, operation)
                await asyncio.to_thread(STRIKES[what], node, namespace)
                row = await here.reaches(Phase(desired.value))
                assert row.error_reason is None
        finally:
            await asyncio.to_thread(node.wait_ready)
        assert differences(before, fingerprint(files())) == []

        async def tidied() -> bool:
            return await asyncio.to_thread(leftovers(node, namespace)) == []

        await until(tidied, "nothing is left over")
