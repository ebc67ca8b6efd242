"""Kill -9 of the coordinator at the points of a claim's life: the next leader gets it right, nothing is left over."""

from __future__ import annotations

import json
import os
import random
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from codehub.adapters.objectstore.store import Store
from codehub.adapters.postgres.pool import Database
from testing.codehub.installation import installation
from testing.codehub.kill_chain import KillChain
from testing.codehub.kubernetes import IMAGE, Node

pytestmark = [pytest.mark.needs("kubernetes", "root"), pytest.mark.timeout(1500)]
_NOWHERE = Path("/nonexistent-volume")


def environment(namespace: str) -> dict[str, str]:
    return {
        "CODEHUB_RUNTIME": "kubernetes",
        "KUBECONFIG": os.environ["KUBECONFIG"],
        "CODEHUB_K8S_NAMESPACE": namespace,
        "CODEHUB_K8S_IMAGE": IMAGE,
        "CODEHUB_K8S_HOME_SIZE": "100Mi",
    }


def volume_of(node: Node, namespace: str, workspace_id: str) -> Callable[[], Path]:
    """The whole claim's directory on the node. A volume is made when a pod needs it: here, when a test looks."""

    def claims() -> list[dict[str, dict[str, str]]]:
        selector = f"codehub.dev/workspace={workspace_id},codehub.dev/role=home"
        raw = node.kubectl("get", "pvc", "-n", namespace, "-l", selector, "-o", "json")
        items: list[dict[str, dict[str, str]]] = json.loads(raw)["items"]
        return [item for item in items if "deletionTimestamp" not in item["metadata"]]

    def find() -> Path:
        found = [one for one in claims() if "codehub.dev/whole" in one["metadata"]["annotations"]]
        if not found:
            return _NOWHERE
        name = found[0]["metadata"]["name"]
        node.kubectl(
            "annotate", "pvc", name, "-n", namespace, "--overwrite", "volume.kubernetes.io/selected-node=node1"
        )
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            volume = node.kubectl("get", "pvc", name, "-n", namespace, "-o", "jsonpath={.spec.volumeName}")
            if volume:
                path = Path(node.kubectl("get", "pv", volume, "-o", "jsonpath={.spec.hostPath.path}"))
                if path.is_dir():
                    return path
            time.sleep(0.1)
        raise AssertionError(f"no volume was made for {name}")

    return find


def leftovers(node: Node, namespace: str) -> Callable[[], list[str]]:
    def find() -> list[str]:
        listed = json.loads(node.kubectl("get", "jobs,pods,pvc", "-n", namespace, "-o", "json"))["items"]
        return [
            f"{item['kind']}/{item['metadata']['name']}"
            for item in listed
            if item["kind"] == "Job"
            or (
                item["kind"] == "PersistentVolumeClaim" and "codehub.dev/whole" not in item["metadata"]["annotations"]
            )
        ]

    return find


@pytest.mark.parametrize(
    ("seed", "provision", "archive", "restore"),
    [
        (1, ["provision:staged"], ["archive:bytes", "archive:after-meta"], ["restore:staged", "restore:bytes"]),
        (2, ["provision:swapped"], ["archive:after-data", "deprovision:half-removed"], ["restore:unpacked"]),
        (3, [], ["archive:before-data", "archive:verified", "deprovision:removed"], ["restore:swapped"]),
        (
            4,
            ["commit:PROVISIONING→NONE"],
            ["commit:ARCHIVING→ARCHIVING", "deprovision:fenced"],
            ["commit:RESTORING→NONE"],
        ),
    ],
)
async def test_killed_at_the_points_of_a_claim(
    database: Database,
    redis_url: str,
    node: Node,
    namespace: str,
    seed: int,
    provision: list[str],
    archive: list[str],
    restore: list[str],
) -> None:
    rng = random.Random(seed)
    async with installation(database, redis_url, environment(namespace)) as here:
        (here.data_dir.parent / "profiles.toml").write_text(
            f'[profiles.tiny]\nimage = "{IMAGE}"\nhealth_path = "/healthz"\n'
        )
        here.row = replace(here.row, instance_backend="kubernetes", storage_backend="pvc")
        chain = KillChain(
            here,
            Store((here.data_dir / "archives").as_uri()),
            volume_of(node, namespace, here.row.id),
            leftovers(node, namespace),
            (1000, 1000),
            pick=lambda point: rng.randrange(1, 3) if point.endswith(":bytes") else 1,
        )
        await chain.provision(provision)
        await chain.cycle(archive, restore)
        await chain.end()
