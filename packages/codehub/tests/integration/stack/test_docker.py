"""CodeHub with containers and an S3 store, as a user runs it: a file from start to restore, and failing containers."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from testing.codehub.container_walkthrough import (
    Walk,
    build_images,
    docker_stack,
    tiny_profiles,
    walk_with_shipped_images,
)
from testing.codehub.docker import DockerEngine
from testing.codehub.docker_ide import load_code_server_image
from testing.codehub.objectstore import S3Server

pytestmark = [
    pytest.mark.needs("docker", "root"),
    pytest.mark.xdist_group("docker"),
    pytest.mark.timeout(600),
]


@pytest.fixture
def walk(docker_engine: DockerEngine, s3_server: S3Server, tmp_path: Path) -> Iterator[Walk]:
    settings = tiny_profiles(tmp_path) | {"CODEHUB_INSTANCE_MEMORY": "512M"}
    with docker_stack(docker_engine, s3_server, up=True, **settings) as walk:
        yield walk
        with docker_engine.client() as client:
            for name in walk.containers():
                client.delete(f"http://docker/containers/{name}", params={"force": "true"})


def kinds(client: httpx.Client, workspace_id: str) -> str:
    """Everything its events say, for looking something up in it."""
    items = client.get(f"/api/v1/workspaces/{workspace_id}/events", params={"per_page": 100}).json()["items"]
    return "\n".join(f"{item['kind']} {item['message']} {item['detail']}" for item in items)


def test_a_file_in_a_container_survives_stop_archive_restore_and_start_with_its_archive_in_s3(walk: Walk) -> None:
    with walk.signed_in() as client:
        workspace_id = walk.file_survives(client, "tiny", "/healthz", "/")
        _logs_are_followed(walk, client, workspace_id)
        _failures_are_reported(walk, client)


def _logs_are_followed(walk: Walk, client: httpx.Client, workspace_id: str) -> None:
    path = f"/api/v1/workspaces/{workspace_id}/logs"
    assert f"hello from {workspace_id}" in client.get(path).text
    with client.stream("GET", path, params={"follow": "true"}) as answer:
        pieces = answer.iter_text()
        assert "hello from" in next(pieces)
        # The stream ends with the instance.
        stopping = threading.Thread(target=walk.ask, args=(client, workspace_id, "stop", "STANDBY"))
        stopping.start()
        for _ in pieces:
            pass
        stopping.join()


def _failures_are_reported(walk: Walk, client: httpx.Client) -> None:
    """Why an instance ended, as its condition's reason and in its events."""
    greedy, quitter, missing = (walk.create(client, name) for name in ("greedy", "quitter", "missing"))
    for workspace_id, reason in ((greedy, "OOMKilled"), (quitter, "ExitCode:3")):

        def reported(workspace_id: str = workspace_id, reason: str = reason) -> bool:
            conditions = client.get(f"/api/v1/workspaces/{workspace_id}").json()["conditions"]
            return reason in str(conditions) and reason in kinds(client, workspace_id)

        walk.stack.wait(reported)
    failed = walk.reach(client, missing, "ERROR")
    assert failed["error_reason"] == "ImagePullFailed"
    assert "ImagePullFailed" in kinds(client, missing)


def test_code_server_in_a_container_keeps_its_file_with_its_archive_in_s3(
    docker_engine: DockerEngine, s3_server: S3Server
) -> None:
    load_code_server_image(docker_engine)
    with docker_stack(docker_engine, s3_server) as walk, walk.signed_in() as client:
        walk.file_survives(client, "code-server", "/healthz", "/?folder=/home/coder")


@pytest.mark.soak
@pytest.mark.needs("debootstrap")
@pytest.mark.timeout(3600)
def test_the_shipped_images_are_built_and_their_ides_keep_their_files(docker_engine: DockerEngine) -> None:
    build_images(docker_engine)
    said: list[str] = []
    walk_with_shipped_images(docker_engine, said.append)
    assert sum("restored and started" in line for line in said) == 2
