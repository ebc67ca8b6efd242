"""Coordinators as processes on the real node: their settings, the location of a home's files, and forbidden leftovers."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from testing.codehub.installation import Installation
from testing.codehub.kubernetes import IMAGE, TIMEOUT_S, Node

_NOWHERE = Path("/nonexistent-volume")


def environment(namespace: str) -> dict[str, str]:
    return {
        "CODEHUB_RUNTIME": "kubernetes",
        "KUBECONFIG": os.environ["KUBECONFIG"],
        "CODEHUB_K8S_NAMESPACE": namespace,
        "CODEHUB_K8S_IMAGE": IMAGE,
        "CODEHUB_K8S_HOME_SIZE": "100Mi",
        "CODEHUB_K8S_CPU_REQUEST": "10m",
        "CODEHUB_K8S_MEMORY_REQUEST": "32Mi",
        "CODEHUB_INSTANCE_MEMORY": "256M",
    }


def prepare(here: Installation) -> None:
    """Assign the workspace to the cluster."""
    (here.data_dir.parent / "profiles.toml").write_text(
        f'[profiles.tiny]\nimage = "{IMAGE}"\nhealth_path = "/healthz"\n'
    )
    here.row = replace(here.row, instance_backend="kubernetes", storage_backend="pvc")


def volume_of(node: Node, namespace: str, workspace_id: str) -> Callable[[], Path]:
    """Return the complete claim's directory on the node.

    Creates the volume, which otherwise happens when a pod needs it.
    """

    def claims() -> list[dict[str, Any]]:
        selector = f"codehub.dev/workspace={workspace_id},codehub.dev/role=home"
        raw = node.kubectl("get", "pvc", "-n", namespace, "-l", selector, "-o", "json")
        items: list[dict[str, Any]] = json.loads(raw)["items"]
        return [item for item in items if "deletionTimestamp" not in item["metadata"]]

    def find() -> Path:
        found = [one for one in claims() if "codehub.dev/whole" in one["metadata"]["annotations"]]
        if not found:
            return _NOWHERE
        name = found[0]["metadata"]["name"]
        node.kubectl(
            "annotate", "pvc", name, "-n", namespace, "--overwrite", "volume.kubernetes.io/selected-node=node1"
        )
        deadline = time.monotonic() + TIMEOUT_S
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
    """Return Jobs, their pods, and incomplete claims. There are none while no operation is in progress."""

    def find() -> list[str]:
        listed = json.loads(node.kubectl("get", "jobs,pods,pvc", "-n", namespace, "-o", "json"))["items"]
        return [f"{item['kind']}/{item['metadata']['name']}" for item in listed if _is_left_over(item)]

    return find


def _is_left_over(item: dict[str, Any]) -> bool:
    meta = item["metadata"]
    if item["kind"] == "Pod":
        # The kubelet takes up to a minute to end a pod that is being deleted.
        return meta["labels"].get("codehub.dev/role") == "transfer" and "deletionTimestamp" not in meta
    return item["kind"] == "Job" or "codehub.dev/whole" not in (meta.get("annotations") or {})
