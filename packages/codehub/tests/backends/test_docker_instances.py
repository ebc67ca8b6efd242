"""Containers of a real engine: the contract, what a workspace cannot reach, and what happens when things die."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import pytest

from codehub.adapters.docker.seccomp_profile import seccomp_option
from codehub.adapters.filesystem.ownership import container_uid_for
from codehub.domain.errors import BackendDown, Conflict, ImagePullFailed
from codehub.domain.template_options import Size
from codehub.ports.fence import ignore_progress, no_fence
from codehub.ports.instances import ABSENT
from testing.codehub.contracts.instances import InstancesContract, healthy, started, until, wid
from testing.codehub.docker import DockerEngine
from testing.codehub.docker_world import DockerWorld, close_world, open_world

pytestmark = [pytest.mark.needs("docker", "root"), pytest.mark.xdist_group("docker")]


@pytest.fixture
async def box(docker_engine: DockerEngine, tmp_path: Path) -> AsyncIterator[DockerWorld]:
    world = await open_world(docker_engine, tmp_path)
    try:
        yield world
    finally:
        await close_world(world)


class TestDocker(InstancesContract):
    @pytest.fixture
    def world(self, box: DockerWorld) -> DockerWorld:
        return box


async def test_a_container_is_hardened_limited_and_publishes_nothing(box: DockerWorld) -> None:
    status = await started(box)
    assert status.upstream is not None
    assert status.upstream.secret is not None
    shown = await box.engine.get(f"containers/codehub-ws-{wid()}/json")
    host = shown["HostConfig"]
    assert host["CapDrop"] == ["ALL"]
    assert host["SecurityOpt"] == ["no-new-privileges:true", *seccomp_option(os.uname().machine)]
    assert not host["Privileged"]
    assert (host["Memory"], host["NanoCpus"], host["PidsLimit"]) == (256 << 20, 10**9, 100)
    assert not any(shown["NetworkSettings"]["Ports"].values())
    assert (await box.ask(wid(), "id -u; id -un; echo $HOME; pwd; echo mine > mine; cat mine")).split() == [
        str(container_uid_for(wid())), "coder", "/home/coder", "/home/coder", "mine",
    ]  # fmt: skip
    assert "NoNewPrivs:\t1" in await box.ask(wid(), "cat /proc/self/status")
    usage = await box.instances.usage(wid())
    assert usage is not None
    assert usage["memory_limit_bytes"] == 256 << 20


async def test_the_sizes_of_its_template_hold_in_its_container(box: DockerWorld) -> None:
    spec = await box.spec(wid())
    for size, expected in (
        (Size(cpus=0.5, memory_bytes=192 << 20), (192 << 20, 5 * 10**8)),
        (Size(memory_bytes=384 << 20), (384 << 20, 10**9)),
        (Size(cpus=1.5), (256 << 20, 15 * 10**8)),
    ):
        sized = replace(spec, size=size)
        await box.instances.start(sized, ignore_progress, no_fence)
        await healthy(box, sized)
        host = (await box.engine.get(f"containers/codehub-ws-{wid()}/json"))["HostConfig"]
        assert (host["Memory"], host["NanoCpus"]) == expected
        assert host["MemorySwap"] == host["Memory"], "swap is no way around it"
        usage = await box.instances.usage(wid())
        assert usage is not None
        assert usage["memory_limit_bytes"] == expected[0], "the kernel has it too"


async def test_a_stream_that_is_broken_off_leaves_no_connection_behind(box: DockerWorld) -> None:
    await started(box)

    async def greeted() -> bool:
        return bool([part async for part in box.instances.logs(wid(), follow=False)])

    await until(greeted, "there is something to read")
    async with aclosing(_generator(box.instances.logs(wid(), follow=True))) as lines:
        await anext(lines)
        connector = box.engine.docker.session.connector
        assert connector is not None
        assert connector._acquired, "the stream is open"
    assert not connector._acquired


def _generator(stream: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
    assert isinstance(stream, AsyncGenerator)
    return stream


async def test_out_of_memory_is_reported_as_the_reason(box: DockerWorld) -> None:
    spec = await box.spec(wid())
    greedy = replace(spec, profile=replace(spec.profile, env=MappingProxyType({"EAT": "all of it"})))
    await box.instances.start(greedy, ignore_progress, no_fence)

    async def reported() -> bool:
        return (await box.instances.status(wid())).exit_reason is not None

    await until(reported, "it is seen to end")
    assert (await box.instances.status(wid())).exit_reason == "OOMKilled"


async def test_a_missing_image_fails_at_once_and_leaves_nothing(box: DockerWorld) -> None:
    spec = await box.spec(wid())
    for image in ("codehub-test/none:1", f"127.0.0.1:9/team/none@sha256:{'0' * 64}"):
        with pytest.raises(ImagePullFailed):
            await box.instances.start(replace(spec, image=image), ignore_progress, no_fence)
    assert await box.instances.status(wid()) == ABSENT


async def test_two_installations_on_one_engine_never_touch_each_other(
    box: DockerWorld, docker_engine: DockerEngine, tmp_path: Path
) -> None:
    mine = await started(box)
    other = await open_world(docker_engine, tmp_path / "other")
    try:
        assert await other.instances.list_all() == {}
        for attempt in (other.instances.stop, other.instances.delete):
            with pytest.raises(Conflict):
                await attempt(wid(), no_fence)
        with pytest.raises(Conflict):
            await other.instances.start(await other.spec(wid()), ignore_progress, no_fence)
        assert await box.instances.status(wid()) == mine
    finally:
        await close_world(other)


async def test_an_engine_that_died_is_a_backend_that_is_down_and_its_containers_go_on(
    box: DockerWorld, docker_engine: DockerEngine
) -> None:
    before = await started(box)
    assert before.upstream is not None
    docker_engine.kill()
    try:
        for question in (box.instances.ping(), box.instances.list_all(), box.instances.status(wid())):
            with pytest.raises(BackendDown):
                await question
    finally:
        docker_engine.start()

    async def back() -> bool:
        try:
            return await box.instances.list_all() == {wid(): before}
        except BackendDown:
            return False

    await until(back, "the same container is there again")
    assert await healthy(box, await box.spec(wid())) == before


def test_the_engine_is_the_tests_own(docker_engine: DockerEngine) -> None:
    assert docker_engine.base.name.startswith("chdocker-")
    assert os.path.exists(docker_engine.socket)
