"""What a build makes of a workspace's Dockerfile and output.

What a step prints can imitate the engine's own messages: it ends no build and fills no memory.
"""

from __future__ import annotations

import io
import tarfile
from typing import cast

from codehub.adapters.docker.builds import BuildLimits, DockerImageBuilder, _Build
from codehub.adapters.docker.container import DockerLimits
from codehub.adapters.docker.engine import Engine
from codehub.adapters.docker.network import Network
from codehub.domain.dockerfile import check_dockerfile
from codehub.ports.image_builds import BuildNews, BuildOrder


class _Engine:
    installation_id = "test"


def a_builder() -> DockerImageBuilder:
    return DockerImageBuilder(cast(Engine, _Engine()), cast(Network, None), cast(DockerLimits, None), BuildLimits())


def sent(dockerfile: str) -> list[str]:
    """The lines that the engine gets, where it ends them."""
    head = a_builder()._head(BuildOrder("ref", check_dockerfile(dockerfile, {}).text, "name"))
    with tarfile.open(fileobj=io.BytesIO(head + bytes(1024))) as files:
        found = files.extractfile("name")
        assert found is not None
        return found.read().decode().split("\n")


def test_labels_of_a_dockerfile_do_not_replace_ours() -> None:
    """The builder finds the steps to limit by them, and the coordinator its instances."""
    lines = sent("FROM debian\nLABEL codehub.role=instance codehub.workspace=other\nRUN true\n")
    ours = 'LABEL codehub.installation="test" codehub.role="dev-image"'
    assert lines[1:5] == [ours, "LABEL codehub.role=instance codehub.workspace=other", ours, "RUN true"]


async def test_imitated_messages_of_the_engine_change_nothing_but_messages() -> None:
    builder = a_builder()
    told: list[BuildNews] = []
    build = _Build(told.append)
    for number in range(5000):
        await builder._note(build, {"stream": f" ---> Running in {number:012x}\n"})
    assert list(build.containers) == [f"{number:012x}" for number in range(4936, 5000)]
    for text in ("Step 1/0 : x", f"Step 1/{'7' * 5000} : x", "Step \u0663/4 : x"):
        await builder._note(build, {"stream": text})
        assert told[-1] == BuildNews(text, "", None)
    await builder._note(build, {"stream": "Step 3/4 : RUN make"})
    assert told[-1].percent == 50


def test_the_engine_gets_the_lines_that_were_checked() -> None:
    builder = DockerImageBuilder(
        cast(Engine, _Engine()), cast(Network, None), cast(DockerLimits, None), BuildLimits()
    )
    sent = builder._head(BuildOrder("r", "FROM a\nRUN x\u2028ADD http://a /x\n", "Dockerfile", ("a",)))
    assert b"FROM a\nLABEL " in sent
    assert "\nRUN x\u2028ADD http://a /x\n".encode() in sent
