"""`codehub doctor` tries the boundaries of containers: with the packet filter, and after another program removed it."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from codehub.adapters.docker.engine import Engine
from codehub.adapters.docker.network import Network
from codehub.wiring import INSTALLATION_FILE
from testing.codehub.docker import TINY_IMAGE, DockerEngine
from testing.codehub.services import service_dir

pytestmark = [
    pytest.mark.needs("docker", "root"),
    pytest.mark.xdist_group("docker"),
    pytest.mark.timeout(600),
]
PARTS = {"reach the API", "reach the proxy", "reach the database", "reach Valkey"}
BY_FILTER = PARTS | {
    "reach this machine's network address",
    "reach this machine's address on the containers' network",
}
REST = {
    "reach the Docker engine",
    "reach this machine's loopback",
    "reach another workspace's ports",
    "reach another workspace's abstract sockets",
    "reach another workspace's IDE",
    "read another home",
    "read CodeHub's data directory",
    "make a user namespace",
    "start more processes than its limit",
    "take more memory than its limit",
}
METADATA = "reach cloud metadata"


@pytest.fixture
def environment(docker_engine: DockerEngine) -> Iterator[dict[str, str]]:
    """An installation whose parts answer on all addresses of this machine."""
    data_dir = service_dir()
    (data_dir / "run").mkdir()
    (data_dir / "secrets.key").write_text("secret")
    with contextlib.ExitStack() as stack:
        parts = [stack.enter_context(socket.create_server(("0.0.0.0", 0), backlog=64)) for _ in range(4)]
        api, proxy, database, valkey = (part.getsockname()[1] for part in parts)
        yield {
            "PATH": os.environ["PATH"],
            "CODEHUB_DATA_DIR": str(data_dir),
            "CODEHUB_RUNTIME": "docker",
            "CODEHUB_ALLOWED_IMAGES": TINY_IMAGE,
            "CODEHUB_API_BIND": f"0.0.0.0:{api}",
            "CODEHUB_PROXY_BIND": f"0.0.0.0:{proxy}",
            "CODEHUB_DATABASE_URL": f"postgresql://nobody@127.0.0.1:{database}/none?connect_timeout=2",
            "CODEHUB_REDIS_URL": f"redis://127.0.0.1:{valkey}",
            "DOCKER_HOST": docker_engine.host,
        }
    shutil.rmtree(data_dir)


def doctor(environment: dict[str, str]) -> dict[str, dict[str, str]]:
    command = [sys.executable, "-m", "codehub.cli.main", "doctor", "--json", "--boundaries-timeout", "120"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=500, check=False)
    assert done.stdout, done.stderr
    assert not list(Path(environment["CODEHUB_DATA_DIR"], "run").iterdir()), "nothing is left behind"
    return {one["boundary"]: one for one in json.loads(done.stdout) if one["part"] == "boundary"}


def by_verdict(found: dict[str, dict[str, str]], verdict: str) -> set[str]:
    return {name for name, one in found.items() if one["verdict"] == verdict}


def objects(engine: DockerEngine) -> set[str]:
    """The containers, and the networks that are CodeHub's."""
    with engine.client() as client:
        containers = client.get("http://docker/containers/json", params={"all": "true"}).json()
        networks = client.get("http://docker/networks").json()
    return {item["Id"] for item in containers} | {
        item["Name"] for item in networks if item["Name"].startswith("codehub-")
    }


def test_every_boundary_of_a_container_holds(docker_engine: DockerEngine, environment: dict[str, str]) -> None:
    before = objects(docker_engine)
    found = doctor(environment)
    assert by_verdict(found, "held") == BY_FILTER | REST | {METADATA}, found
    assert set(found) == by_verdict(found, "held")
    assert objects(docker_engine) == before, "neither a container nor a network is left"


async def test_a_rule_that_is_missing_is_reported_and_not_repaired(
    docker_engine: DockerEngine, environment: dict[str, str]
) -> None:
    engine = Engine(docker_engine.host, f"test-{uuid.uuid4()}")
    Path(environment["CODEHUB_DATA_DIR"], INSTALLATION_FILE).write_text(engine.installation_id + "\n")
    network = Network(engine)
    try:
        await network.ensure()
        rule = ["INPUT", "-i", network.filter.bridge, "-m", "conntrack", "--ctstate", "NEW", "-j", "DROP"]
        subprocess.run(["iptables", "-w", "10", "-D", *rule], check=True)
        found = doctor(environment)
        assert by_verdict(found, "NOT HELD") == BY_FILTER, found
        assert by_verdict(found, "held") == REST | {METADATA}, found
        assert all("iptables" in found[name]["fix"] for name in BY_FILTER)
        assert not await network.filter.is_set()
    finally:
        await network.remove()
        await engine.close()


def test_nothing_is_pulled_for_a_diagnosis(environment: dict[str, str]) -> None:
    del environment["CODEHUB_ALLOWED_IMAGES"]
    found = doctor(environment)
    assert found["all"]["verdict"] == "could not be tried"
    assert "no image of a workspace is on this machine yet" in found["all"]["message"]
