"""SSH into Pods, and what their IDE gets from CodeHub, with any image."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from testing.codehub.doors import Doors
from testing.codehub.kubernetes import Node
from testing.codehub.kubernetes_stack import Beside
from testing.codehub.laptop import Laptop

pytestmark = [pytest.mark.needs("kubernetes", "root", "sshd"), pytest.mark.timeout(900)]
_SECRET = "s3cret-of-this-test"


def test_ssh_works_in_an_image_without_python_ssh_server_or_our_user(
    node: Node, beside: Beside, tmp_path: Path
) -> None:
    walk = beside.walk
    node.load_plain_image()
    home = tmp_path / "laptop"
    home.mkdir()
    with walk.signed_in() as client:
        workspace_id = walk.create(client, "plain")
        walk.reach(client, workspace_id, "RUNNING")
        token = client.headers["Authorization"].removeprefix("Bearer ")
        laptop = Laptop(Doors(walk.stack, workspace_id, token), home)
        said = laptop.ssh(laptop.host, "id -un; id -u; echo $HOME; pwd; ls /home; command -v python3; true").decode()
        assert said.split() == ["coder", "1000", "/home/coder", "/home/coder", "coder", "node"]
        assert laptop.run("ssh", "-F", str(laptop.config), laptop.host, "exit 7").returncode == 7
        data = os.urandom(2_000_000)
        (home / "up.bin").write_bytes(data)
        for words in (("up.bin", f"{laptop.host}:note"), (f"{laptop.host}:note", "back.bin")):
            done = laptop.run("scp", "-F", str(laptop.config), *words)
            assert done.returncode == 0, done.stderr.decode()
        assert (home / "back.bin").read_bytes() == data
        done = laptop.doors.codehub("ssh", workspace_id, "--", "id", "-un")
        assert done.stdout.decode().strip() == "coder", done.stderr
        # Asleep and started again: the same host key, which the client checks.
        walk.ask(client, workspace_id, "stop", "STANDBY")
        assert laptop.ssh(laptop.host, "sha256sum note").split()[1] == b"note"


def test_the_ide_has_its_owners_secrets_and_gits_settings_and_the_pod_has_not(node: Node, beside: Beside) -> None:
    walk = beside.walk
    with walk.signed_in() as client:
        for name, body in (("API_TOKEN", {"value": _SECRET}), ("cert.pem", {"kind": "file", "value": _SECRET})):
            answer = client.put(f"/api/v1/secrets/{name}", json=body)
            assert answer.status_code < 300, answer.text
        workspace_id = walk.create(client, "tiny")
        walk.reach(client, workspace_id, "RUNNING")
        for _ in ("the first start", "after sleep"):
            env = json.loads(walk.page(client, workspace_id, "/env"))
            assert env["API_TOKEN"] == _SECRET
            assert env["GIT_CONFIG_KEY_0"] == "include.path"
            assert env["USER"] == "coder"
            assert "CODEHUB_ENVIRONMENT_PIPE" not in env
            wait = "until [ -e $CODEHUB_SECRETS_DIR/cert.pem ] && [ -e $GIT_CONFIG_VALUE_0 ]; do sleep 0.1; done"
            said = walk.page(client, workspace_id, "/run", "POST", f"{wait}; cat $CODEHUB_SECRETS_DIR/cert.pem")
            assert said == _SECRET
            # A command's output is kept in the home, so this prints the length alone.
            ran = client.post(f"/api/v1/workspaces/{workspace_id}/exec", json={"command": "echo ${#API_TOKEN}"})
            assert ran.json()["stdout"].strip() == str(len(_SECRET)), ran.text
            # Neither in what the cluster stores, nor in the home.
            assert _SECRET not in node.kubectl("get", "pods", "-n", beside.namespace, "-o", "json")
            found = walk.page(client, workspace_id, "/run", "POST", f"grep -rl {_SECRET} ~ /tmp; true")
            assert found == ""
            walk.ask(client, workspace_id, "stop", "STANDBY")
            walk.ask(client, workspace_id, "start", "RUNNING")
