"""What people type first in a container: pip, npm, python, git, in an image of their own that has Python like Debian's."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from testing.codehub.container_walkthrough import docker_stack
from testing.codehub.docker import DockerEngine
from testing.codehub.doors import Doors
from testing.codehub.ide import IDE_DIR, installed_code_server
from testing.codehub.objectstore import S3Server
from testing.codehub.toolchain import check_toolchain, debian_python_root

pytestmark = [
    pytest.mark.needs("docker", "root"),
    pytest.mark.xdist_group("docker"),
    pytest.mark.timeout(900),
]
IMAGE = "codehub-test/debian-python:1"


@pytest.fixture
def doors(docker_engine: DockerEngine, s3_server: S3Server) -> Iterator[Doors]:
    installed_code_server()
    docker_engine.load_image(IMAGE, debian_python_root(), ['CMD ["sh"]', "ENV PATH=/usr/local/bin:/usr/bin:/bin"])
    with docker_stack(docker_engine, s3_server, CODEHUB_ALLOWED_IMAGES=IMAGE, up=False) as walk:
        (walk.stack.data_dir / "ide").symlink_to(IDE_DIR)
        walk.stack.up()
        with walk.signed_in() as client:
            workspace_id = walk.create(client, IMAGE)
            walk.reach(client, workspace_id, "RUNNING")
            yield Doors(walk.stack, workspace_id, client.headers["Authorization"].removeprefix("Bearer "))


def test_pip_npm_git_and_shells_work_in_an_image_of_the_users_own(doors: Doors) -> None:
    def restart() -> None:
        restarted = doors.codehub("ws", "restart", doors.workspace_id, "--wait")
        assert restarted.returncode == 0, restarted.stderr

    check_toolchain(doors.sh, restart)
