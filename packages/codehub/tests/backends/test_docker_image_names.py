"""An image that was built for one workspace, as a real engine names it: nobody else gets it, whatever they write."""

from __future__ import annotations

import uuid

import pytest

from codehub.adapters.docker.builds import BuildLimits, DockerImageBuilder
from codehub.adapters.docker.container import DockerLimits
from codehub.adapters.docker.engine import Engine
from codehub.adapters.docker.images import find_image
from codehub.adapters.docker.network import Network
from codehub.domain.dockerfile import check_dockerfile
from codehub.domain.errors import Invalid
from codehub.domain.images import parse_image
from codehub.domain.profiles import Catalog, Runs
from testing.codehub.docker import TINY_IMAGE, DockerEngine

pytestmark = [pytest.mark.needs("docker", "root"), pytest.mark.xdist_group("docker"), pytest.mark.timeout(300)]
# The widest lists that an administrator may have, the last one with the name itself.
_LISTS = (("*",), ("*:*", "*/*", "*@*"), ("localhost/*", "sha256:*", "sha256*", "*"), ("localhost/codehub-dev-*",))


async def test_an_image_of_another_workspace_is_reached_by_no_name_and_no_id(
    engine: Engine, docker_engine: DockerEngine
) -> None:
    builder = DockerImageBuilder(engine, Network(engine), DockerLimits(), BuildLimits())
    ref = builder.ref(uuid.uuid4().hex)
    with docker_engine.client() as client:
        name, _, tag = ref.rpartition(":")
        made = client.post(f"http://docker/images/{TINY_IMAGE}/tag", params={"repo": name, "tag": tag})
        assert made.status_code == 201, made.text
    try:
        found = await find_image(engine, ref)
        assert found is not None
        id_ = str(found["Id"])
        digits = id_.removeprefix("sha256:")
        others = [
            f"python@{id_}",
            f"{name}@{id_}",
            f"{ref}@{id_}",
            f"{digits}:latest",
            f"sha256:{tag}",
            f"library/{ref}",
        ]
        ids = [id_, id_[:19], id_[:11], digits, digits[:12], digits[:8]]
        there = [text for text in (ref, *ids) if await _id_of(engine, text) == id_]
        assert there == [ref, *ids], "the engine itself takes all of these for the image"
        for text in (ref, *ids, *others):
            for globs in _LISTS:
                catalog = Catalog(allowed_images=globs)
                for line in ("", f"FROM {text}\n", f"FROM scratch\nCOPY --from={text} / /\n"):
                    for image in _accepted(catalog, text, line):
                        assert await _id_of(engine, image) != id_, (text, globs, line)
    finally:
        await builder.remove(ref)


def _accepted(catalog: Catalog, text: str, dockerfile: str) -> list[str]:
    """The images that the engine is given: of a workspace, or of a Dockerfile's text."""
    try:
        if not dockerfile:
            return [catalog.resolve(text, Runs.IMAGE)[0]]
        recipe = check_dockerfile(dockerfile, {})
        for base in recipe.bases:
            catalog.resolve(str(parse_image(base)), Runs.IMAGE)
    except Invalid:
        return []
    words = [word.removeprefix("--from=") for line in recipe.text.splitlines() for word in line.split()[1:2]]
    return [word for word in words if word != "scratch"]


async def _id_of(engine: Engine, text: str) -> str:
    found = await find_image(engine, text)
    return "" if found is None else str(found["Id"])
