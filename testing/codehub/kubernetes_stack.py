"""A complete CodeHub beside the real node: `codehub up` with CODEHUB_RUNTIME=kubernetes and archives in S3."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from testing.codehub.container_walkthrough import Walk
from testing.codehub.docker import DockerEngine
from testing.codehub.full_stack import fresh_stack
from testing.codehub.kubernetes import IMAGE, PLAIN_IMAGE, Node, fresh_namespace
from testing.codehub.objectstore import S3Server

_PROFILES = f"""
[profiles.tiny]
image = "{IMAGE}"
health_path = "/healthz"
[profiles.plain]
image = "{PLAIN_IMAGE}"
[profiles.missing]
image = "127.0.0.1:9/team/none:1"
"""


@contextlib.contextmanager
def kubernetes_stack(node: Node, namespace: str, server: S3Server, place: Path, **more: str) -> Iterator[Walk]:
    profiles = place / "profiles.toml"
    profiles.write_text(_PROFILES)
    store = server.fresh()
    with fresh_stack() as stack:
        stack.environment |= {
            "CODEHUB_RUNTIME": "kubernetes",
            "KUBECONFIG": os.environ["KUBECONFIG"],
            "CODEHUB_K8S_NAMESPACE": namespace,
            "CODEHUB_K8S_IMAGE": IMAGE,
            "CODEHUB_K8S_HOME_SIZE": "100Mi",
            "CODEHUB_K8S_CPU_REQUEST": "10m",
            "CODEHUB_K8S_MEMORY_REQUEST": "32Mi",
            "CODEHUB_INSTANCE_MEMORY": "256M",
            "CODEHUB_PROFILES_FILE": str(profiles),
            "CODEHUB_DEFAULT_PROFILE": "tiny",
            "LIMITS_MAX_RUNNING_PER_USER": "10",
            **server.environment(store),
            **more,
        }
        stack.up()
        try:
            yield Walk(stack, DockerEngine(place), store)
        finally:
            store.close()


def objects(node: Node, namespace: str, workspace_id: str) -> dict[str, list[str]]:
    """Return the names of a workspace's objects by kind, without those that are being deleted."""
    listed = json.loads(node.kubectl("get", "pods,persistentvolumeclaims,jobs", "-n", namespace, "-o", "json"))
    found: dict[str, list[str]] = {"Pod": [], "PersistentVolumeClaim": [], "Job": []}
    for item in listed["items"]:
        if workspace_id in item["metadata"]["name"] and not item["metadata"].get("deletionTimestamp"):
            found[item["kind"]].append(item["metadata"]["name"])
    return found


@dataclass(frozen=True)
class Beside:
    """A CodeHub beside the node that several tests share."""

    walk: Walk
    namespace: str

    def objects(self, node: Node, workspace_id: str) -> dict[str, list[str]]:
        return objects(node, self.namespace, workspace_id)


@pytest.fixture(scope="module")
def beside(node: Node, s3_server: S3Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Beside]:
    """Yield a CodeHub for all tests of a module: its start takes longer than most of them."""
    place = tmp_path_factory.mktemp("beside")
    with fresh_namespace(node) as namespace, kubernetes_stack(node, namespace, s3_server, place) as walk:
        yield Beside(walk, namespace)
