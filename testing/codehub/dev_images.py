"""A CodeHub on Docker that builds images of devcontainer.json, and what tests ask of its workspaces.

Nothing can be pulled in tests, so the images of the kinds are local ones: a tool of that kind on the tests' own base.
"""

from __future__ import annotations

import contextlib
import io
import tarfile
from collections.abc import Iterator
from typing import Any

from testing.codehub.docker import GIT_IMAGE, DockerEngine
from testing.codehub.feature_registry import FeatureRegistry, login_file
from testing.codehub.full_stack import fresh_stack
from testing.codehub.git_server import GitServer
from testing.codehub.repositories import Made, Repositories, open_repositories

KINDS = ("python", "node", "go", "java")


def make_image(engine: DockerEngine, name: str, *lines: str) -> None:
    """Build an image as an administrator would."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as out:
        content = "\n".join([f"FROM {GIT_IMAGE}", *lines]).encode()
        info = tarfile.TarInfo("Dockerfile")
        info.size = len(content)
        out.addfile(info, io.BytesIO(content))
    with engine.client() as client:
        answer = client.post(
            "http://docker/build",
            params={"t": name, "version": "1", "networkmode": "none"},
            content=buffer.getvalue(),
            headers={"Content-Type": "application/x-tar"},
        )
    assert answer.status_code == 200, answer.text
    assert '"error"' not in answer.text, answer.text


@contextlib.contextmanager
def building_repositories(
    engine: DockerEngine, server: GitServer, registry: FeatureRegistry
) -> Iterator[Repositories]:
    engine.load_git_image()
    for kind in KINDS:
        make_image(engine, f"codehub-test/{kind}:1", f"RUN cp /bin/echo /usr/bin/{kind}-tool")
    with fresh_stack() as stack:
        profiles = stack.data_dir / "profiles.toml"
        profiles.write_text(f'[profiles.tiny]\nimage = "{GIT_IMAGE}"\nhealth_path = "/healthz"\n')
        stack.environment |= {
            "CODEHUB_RUNTIME": "docker",
            "DOCKER_HOST": engine.host,
            "CODEHUB_PROFILES_FILE": str(profiles),
            "CODEHUB_DEFAULT_PROFILE": "tiny",
            "CODEHUB_ALLOWED_IMAGES": "codehub-test/*",
            "CODEHUB_DEVCONTAINER_BUILDS": "true",
            "CODEHUB_ALLOWED_FEATURES": f"{registry.address}/team/*",
            "CODEHUB_REGISTRY_CA_FILE": str(registry.authority),
            "CODEHUB_REGISTRY_AUTH_FILE": str(login_file(stack.data_dir, registry.address)),
            "CODEHUB_INSTANCE_NETWORKS": server.network,
            "CODEHUB_GIT_CA_FILE": str(server.ca_file),
            "LIMITS_MAX_RUNNING_PER_USER": "50",
        }
        stack.up()
        yield open_repositories(stack)


def other_user(shop: Repositories) -> Repositories:
    with shop.stack.client() as client:
        made = client.post("/api/v1/users", json={"username": "mallory", "password": "a long password"})
        assert made.status_code == 201, made.text
    with shop.stack.client("mallory", "a long password") as client:
        return Repositories(shop.stack, client.post("/api/v1/tokens", json={"name": "t"}).json()["token"])


def open_repository(shop: Repositories, server: GitServer, name: str, files: dict[str, str]) -> Made:
    server.make(f"public/{name}", files)
    return shop.create(name, repo={"url": server.url(f"public/{name}")})


def image_step(setup: dict[str, Any]) -> dict[str, Any]:
    return next((dict(step) for step in setup["steps"] if step["id"].startswith("image-")), {"state": "none"})


def until_image(made: Made, state: str) -> dict[str, Any]:
    """Return the setup once the step of the image is in this state and every other step has ended."""
    over = ("done", "failed", "skipped")
    return made.until_setup(
        lambda now: (
            image_step(now)["state"] == state
            and now["state"] != "running"
            and all(step["state"] in over for step in now["steps"])
            and made.view()["operation"] == "NONE"
        )
    )


def output(made: Made) -> str:
    return made.codehub("ws", "setup-log", made.workspace_id).stdout.decode()


def rest_and_wake(made: Made) -> None:
    made.put("STANDBY", "STANDBY")
    made.put("RUNNING", "RUNNING")
