"""A complete CodeHub beside the real node: `codehub up` with CODEHUB_RUNTIME=kubernetes and archives in S3."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path

from testing.codehub.container_walkthrough import Walk
from testing.codehub.docker import DockerEngine
from testing.codehub.full_stack import fresh_stack
from testing.codehub.kubernetes import IMAGE, PLAIN_IMAGE, Node
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


def objects(node: Node, namespace: str) -> dict[str, list[str]]:
    """Return the names of our objects by kind, without those that are being deleted."""
    listed = json.loads(node.kubectl("get", "pods,persistentvolumeclaims,jobs", "-n", namespace, "-o", "json"))
    found: dict[str, list[str]] = {"Pod": [], "PersistentVolumeClaim": [], "Job": []}
    for item in listed["items"]:
        if not item["metadata"].get("deletionTimestamp"):
            found[item["kind"]].append(item["metadata"]["name"])
    return found
