"""Wrong settings and missing rights under a whole CodeHub: start and doctor name them, and nothing is deleted."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

import pytest
import yaml

from testing.codehub.container_walkthrough import Walk
from testing.codehub.kubernetes import Node
from testing.codehub.kubernetes_accounts import account_token
from testing.codehub.kubernetes_stack import kubernetes_stack
from testing.codehub.objectstore import S3Server

pytestmark = [pytest.mark.needs("kubernetes", "root"), pytest.mark.timeout(900)]


def kubeconfig(node: Node, place: Path, token: str, server: str = "") -> str:
    """Write the node's kubeconfig with a token instead of the administrator's certificate, and return its path."""
    found = yaml.safe_load((node.lab / "kubeconfig").read_text())
    found["users"][0]["user"] = {"token": token}
    if server:
        found["clusters"][0]["cluster"]["server"] = server
    path = place / f"{uuid.uuid4()}.kubeconfig"
    path.write_text(yaml.safe_dump(found))
    return str(path)


def uids(node: Node, namespace: str) -> set[str]:
    items = json.loads(node.kubectl("get", "pods,pvc", "-n", namespace, "-o", "json"))["items"]
    assert not [one for one in items if "deletionTimestamp" in one["metadata"]]
    return {one["metadata"]["uid"] for one in items}


def restarted(walk: Walk, **environment: str) -> None:
    """As an operator who changed a setting."""
    walk.stack.end()
    walk.stack.environment |= environment
    walk.stack.up()


def test_wrong_access_is_said_at_start_and_by_doctor_and_nothing_is_deleted(
    node: Node, namespace: str, s3_server: S3Server, tmp_path: Path
) -> None:
    right = {"KUBECONFIG": str(node.lab / "kubeconfig"), "CODEHUB_K8S_NAMESPACE": namespace}
    dead = kubeconfig(node, tmp_path, "x", "https://127.0.0.1:9")
    expired = kubeconfig(node, tmp_path, "expired")
    lacking = kubeconfig(node, tmp_path, account_token(node, namespace, without="persistentvolumeclaims"))
    with kubernetes_stack(node, namespace, s3_server, tmp_path) as walk:
        with walk.signed_in() as client:
            workspace_id = walk.create(client, "tiny")
            walk.reach(client, workspace_id, "RUNNING")
        before = uids(node, namespace)
        for wrong, said, by_doctor in (
            ({"KUBECONFIG": dead}, "cannot be reached", "`kubectl version` must work"),
            ({"KUBECONFIG": expired}, "refuses CodeHub's credentials", "`kubectl version` must work"),
            ({"CODEHUB_K8S_NAMESPACE": "no-such"}, "the namespace no-such does not exist", "no-such"),
            ({"KUBECONFIG": lacking}, "does not allow CodeHub to list", "persistentvolumeclaims"),
        ):
            restarted(walk, **(right | wrong))
            seen: dict[str, Any] = {}
            with walk.stack.client() as client:

                def blocked(seen: dict[str, Any] = seen, client: Any = client) -> bool:
                    seen.update(client.get(f"/api/v1/workspaces/{workspace_id}").json())
                    return seen["blocked"] is not None

                walk.stack.wait(blocked)
            assert (seen["phase"], seen["blocked"]["reason"]) == ("RUNNING", "Unreachable")
            assert said in seen["blocked"]["message"]
            assert said in walk.stack.output()
            doctor = walk.stack.run("doctor")
            assert doctor.returncode == 1
            assert by_doctor in doctor.stdout, doctor.stdout
            assert uids(node, namespace) == before
        restarted(walk, **right)
        with walk.signed_in() as client:
            walk.reach(client, workspace_id, "RUNNING")
            assert uids(node, namespace) == before, "it never stopped"
