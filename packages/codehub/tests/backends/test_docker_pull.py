"""Images that are not there yet: pulled from a registry, by tag or digest, with progress; or refused at once."""

from __future__ import annotations

import asyncio
import random
import socket
import uuid
from collections.abc import Iterator

import pytest

from codehub.adapters.docker.engine import Engine
from codehub.adapters.docker.images import ensure_image, find_image
from codehub.domain.errors import ImagePullFailed
from codehub.domain.model import Progress
from testing.codehub.registry import Registry, registry

pytestmark = [pytest.mark.needs("docker", "root"), pytest.mark.xdist_group("docker")]


@pytest.fixture
def source() -> Iterator[Registry]:
    # Another layer for every test: an engine does not fetch what it has. Large enough to be fetched in several pieces.
    with registry(random.Random(uuid.uuid4().int).randbytes(8 << 20)) as served:
        yield served


async def test_an_image_is_pulled_by_its_tag_and_says_how_far_it_is(engine: Engine, source: Registry) -> None:
    image = f"{source.address}/team/ide:1"
    said: list[Progress] = []

    def heard(step: Progress) -> None:
        said.append(step)
        if step.total:
            source.rest.set()

    source.rest.clear()  # the engine tells only what is newest: the other half waits until it has said something
    await ensure_image(engine, image, heard)
    assert await find_image(engine, image) is not None
    counted = [step for step in said if step.total]
    assert counted, "an image of 8 MB arrived without a word"
    assert {step.total for step in counted} == {source.layer_bytes}
    assert [step.done for step in counted] == sorted(step.done for step in counted)
    assert 0 < counted[-1].done <= source.layer_bytes

    said.clear()
    await ensure_image(engine, image, said.append)
    assert said == [], "what is there is not pulled again"


async def test_a_pull_is_reported_before_its_registry_answers_and_can_be_cancelled(engine: Engine) -> None:
    reported = asyncio.Event()

    def heard(step: Progress) -> None:
        assert step == Progress("pull"), "the card says what it waits for"
        reported.set()

    with socket.create_server(("127.0.0.1", 0)) as registry_that_never_answers:
        port = registry_that_never_answers.getsockname()[1]
        pull = asyncio.create_task(ensure_image(engine, f"127.0.0.1:{port}/team/ide:1", heard))
        async with asyncio.timeout(60):
            await reported.wait()
            pull.cancel()
            with pytest.raises(asyncio.CancelledError):
                await pull


async def test_an_image_is_pulled_by_its_digest(engine: Engine, source: Registry) -> None:
    image = f"{source.address}/team/ide@{source.digest}"
    await ensure_image(engine, image, lambda step: None)
    assert await find_image(engine, image) is not None


@pytest.mark.parametrize("name", ["private/ide:1", "team/ide:2", f"team/ide@sha256:{'0' * 64}"])
async def test_an_image_that_is_refused_or_missing_fails_at_once_by_name(
    engine: Engine, source: Registry, name: str
) -> None:
    with pytest.raises(ImagePullFailed, match=name.partition("@")[0].replace("/", ".")):
        await ensure_image(engine, f"{source.address}/{name}", lambda step: None)
    assert await find_image(engine, f"{source.address}/{name}") is None
