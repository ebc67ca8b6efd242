"""compose.yaml and Dockerfile as an operator uses them: servers outside, workspaces as containers on the same engine.

A minute and more, so they are taken by `make soak`; that `docker compose` reads the file as it is meant is in test_units.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from testing.codehub.compose import Composed, build_image, composed, import_image, signed_in
from testing.codehub.docker import TINY_IMAGE, DockerEngine
from testing.codehub.objectstore import S3Server
from testing.codehub.tiny_ide import run_through_proxy

pytestmark = [
    pytest.mark.needs("docker", "root"),
    pytest.mark.xdist_group("docker"),
    pytest.mark.soak,
    pytest.mark.timeout(900),
]
TIMEOUT_S = 120.0


@pytest.mark.parametrize("make_image", [import_image, build_image], ids=["as installed here", "by the Dockerfile"])
def test_what_is_composed_runs_workspaces_and_they_outlive_it(
    make_image: Callable[[DockerEngine], None], docker_engine: DockerEngine, s3_server: S3Server
) -> None:
    make_image(docker_engine)
    with composed(docker_engine, s3_server) as installed:
        installed.run("up", "--detach")
        _until(lambda: _ready(installed), installed)
        with signed_in(installed) as client:
            token = client.post("tokens", json={"name": "test"}).json()["token"]
            # Stored by one container, sent by another, and the image has the web terminal's program.
            assert client.put("secrets/api-token", json={"value": "s3cret", "kind": "file"}).status_code < 300
            assert client.post("terminal-program").json()["ready"]
            made = client.post("workspaces", json={"name": "api", "image_ref": TINY_IMAGE})
            assert made.status_code == 201, made.text
            path = f"workspaces/{made.json()['id']}"
            _until(lambda: client.get(path).json()["status"] == "RUNNING", installed)
            where = "cat $CODEHUB_SECRETS_DIR/api-token"
            _until(lambda: _inside(installed, made.json()["id"], token, where) == "s3cret", installed)
            # The proxy's container, which is not root, reaches a socket in a directory of the workspace.
            assert _inside(installed, made.json()["id"], token, "echo written > note; cat note") == "written\n"
            assert "hello from" in client.get(f"{path}/logs").text
            assert client.post(f"{path}:archive").status_code == 202
            _until(lambda: client.get(path).json()["phase"] == "ARCHIVED", installed)
            assert client.post(f"{path}:start").status_code == 202
            _until(lambda: client.get(path).json()["status"] == "RUNNING", installed)
        assert _inside(installed, made.json()["id"], token, "cat note; echo $HOSTNAME > who") == "written\n"
        who = _inside(installed, made.json()["id"], token, "cat /proc/sys/kernel/random/boot_id /etc/hostname")
        installed.run("down", "--timeout", "20")
        installed.run("up", "--detach")
        _until(lambda: _ready(installed), installed)
        again = _inside(installed, made.json()["id"], token, "cat /proc/sys/kernel/random/boot_id /etc/hostname")
        assert again == who, "the same container as before"


def test_doctor_tries_the_boundaries_of_workspaces_from_the_coordinators_container(
    docker_engine: DockerEngine, s3_server: S3Server
) -> None:
    """CodeHub in a container sets no packet filter, and doctor says what that means on this very machine."""
    import_image(docker_engine)
    with composed(docker_engine, s3_server) as installed:
        installed.run("up", "--detach")
        _until(lambda: _ready(installed), installed)
        with _no_way_to_metadata():
            said = json.loads(installed.doctor())
        found = {one["boundary"]: one for one in said if one["part"] == "boundary"}
        assert "all" not in found, found["all"]["message"]
        held = {name for name, one in found.items() if one["verdict"] == "held"}
        assert {
            "reach the Docker engine",
            "reach another workspace's IDE",
            "reach another workspace's ports",
            "read another home",
            "read CodeHub's data directory",
            "start more processes than its limit",
            "take more memory than its limit",
        } <= held, found
        open_to_all = found["reach this machine's address on the containers' network"]
        assert open_to_all["verdict"] == "NOT HELD", "no packet filter keeps containers from this machine"
        assert "iptables" in open_to_all["fix"]
        sockets = Path(installed.environment["CODEHUB_SOCKETS_DIR"])
        assert not list(sockets.glob("doctor-*")), "nothing is left behind"


@contextlib.contextmanager
def _no_way_to_metadata() -> Iterator[None]:
    """The probe tries to reach cloud metadata. Here, nothing forbids that, and tests send nothing to other machines."""
    rule = ["FORWARD", "-d", "169.254.0.0/16", "-m", "comment", "--comment", "codehub-test-compose", "-j", "REJECT"]
    subprocess.run(["iptables", "-w", "10", "-I", *rule], check=True)
    try:
        yield
    finally:
        subprocess.run(["iptables", "-w", "10", "-D", *rule], check=True)


def _inside(installed: Composed, workspace_id: str, token: str, command: str) -> str:
    answer = run_through_proxy(installed.proxy_port, workspace_id, token, command)
    assert answer.status_code == 200, answer.text
    return answer.text


def _ready(installed: Composed) -> bool:
    try:
        ready = httpx.get(f"{installed.url}/health/ready", timeout=10, trust_env=False).status_code == 200
        led = httpx.get(f"{installed.url}/health/coordinator", timeout=10, trust_env=False).json().get("leader") or {}
        httpx.get(f"http://127.0.0.1:{installed.proxy_port}/health", timeout=10, trust_env=False)
    except httpx.TransportError:
        return False
    return ready and bool(led.get("holder_id"))


def _until(true: Callable[[], bool], installed: Composed) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not true():
        assert time.monotonic() < deadline, installed.run("logs", "--no-color", "--tail", "40")
        time.sleep(0.2)
