"""The real code-server in a Pod, started by the shipped image's script: through the proxy, and closed to everybody else."""

from __future__ import annotations

import json
from pathlib import Path

import httpx
import pytest

from testing.codehub.kubernetes import Node
from testing.codehub.kubernetes_stack import kubernetes_stack
from testing.codehub.objectstore import S3Server

pytestmark = [pytest.mark.needs("kubernetes", "root", "npm"), pytest.mark.timeout(900)]
_SECRET = "s3cret-of-this-test"
_ENVIRONMENT = (
    "for p in /proc/[0-9]*; do grep -az code-server $p/cmdline >/dev/null && cat $p/environ; done 2>/dev/null; true"
)


def test_code_server_opens_through_the_proxy_with_its_owners_secrets_and_for_nobody_else(
    node: Node, namespace: str, s3_server: S3Server, tmp_path: Path
) -> None:
    node.load_code_server_image()
    more = {"CODEHUB_INSTANCE_MEMORY": "2G", "CODEHUB_INSTANCE_CPUS": "2"}
    with kubernetes_stack(node, namespace, s3_server, tmp_path, **more) as walk, walk.signed_in() as client:
        assert client.put("/api/v1/secrets/API_TOKEN", json={"value": _SECRET}).status_code < 300
        workspace_id = walk.create(client, "code-server")
        walk.reach(client, workspace_id, "RUNNING")
        assert "workbench" in walk.page(client, workspace_id, "/?folder=/home/coder")
        ran = client.post(f"/api/v1/workspaces/{workspace_id}/exec", json={"command": _ENVIRONMENT})
        assert f"API_TOKEN={_SECRET}" in ran.json()["stdout"].split("\0")
        (pod,) = json.loads(node.kubectl("get", "pods", "-n", namespace, "-o", "json"))["items"]
        with httpx.Client(trust_env=False, timeout=60) as stranger:
            answer = stranger.get(f"http://{pod['status']['podIP']}:8080/")
            assert answer.status_code == 302, "without the secret of this start, code-server asks for a password"
            assert "login" in answer.headers["location"]
        walk.ask(client, workspace_id, "archive", "ARCHIVED")
        walk.ask(client, workspace_id, "start", "RUNNING")
        assert "workbench" in walk.page(client, workspace_id, "/?folder=/home/coder")
