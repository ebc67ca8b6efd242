"""Containers of a real engine: the contract, what a workspace cannot reach, and what happens when things die."""

from __future__ import annotations

import asyncio
import os
import socket
import uuid
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType

import httpx
import pytest

from codehub.adapters.docker.engine import Engine
from codehub.adapters.docker.instances import DockerInstances, DockerLimits
from codehub.domain.errors import BackendDown, Conflict, ImagePullFailed
from codehub.domain.profiles import AppProfile
from codehub.ports.fence import ignore_progress, no_fence
from codehub.ports.instances import ABSENT, InstanceSpec, Mount, MountKind
from testing.codehub.contracts.instances import InstancesContract, healthy, started, until, wid
from testing.codehub.docker import TINY_IMAGE, DockerEngine

pytestmark = [pytest.mark.needs("docker", "root"), pytest.mark.xdist_group("interfaces")]


@dataclass(frozen=True)
class DockerWorld:
    base: Path
    engine: Engine
    instances: DockerInstances

    async def spec(self, workspace_id: str, variant: str = "a") -> InstanceSpec:
        home = self.base / workspace_id
        home.mkdir(parents=True, exist_ok=True)
        profile = AppProfile(
            name="tiny",
            image=TINY_IMAGE,
            health_path="/healthz",
            env=MappingProxyType({"VARIANT": variant, "T": "{secret}"}),
            secret_header="X-Secret: {secret}",
        )
        return InstanceSpec(workspace_id, TINY_IMAGE, profile, Mount(MountKind.DIR, str(home)))

    async def crash(self, workspace_id: str) -> None:
        await self.engine.send("POST", f"containers/codehub-ws-{workspace_id}/kill", params={"signal": "KILL"})

    async def ask(self, workspace_id: str, command: str) -> str:
        upstream = await self.instances.resolve_upstream(workspace_id)
        assert upstream is not None
        async with httpx.AsyncClient(timeout=120, trust_env=False) as client:
            return (await client.post(f"http://{upstream.host}:{upstream.port}/run", content=command)).text


async def _open(engine: DockerEngine, base: Path, limits: DockerLimits | None = None) -> DockerWorld:
    ours = Engine(engine.host, f"test-{uuid.uuid4()}")
    return DockerWorld(base, ours, DockerInstances(ours, limits or DockerLimits(256 << 20, 1.0, 100, grace_s=2)))


async def _close(world: DockerWorld) -> None:
    for workspace_id in await world.instances.list_all():
        await world.instances.delete(workspace_id, no_fence)
    await world.instances.network.remove()
    await world.engine.close()


@pytest.fixture
async def box(docker_engine: DockerEngine, tmp_path: Path) -> AsyncIterator[DockerWorld]:
    world = await _open(docker_engine, tmp_path)
    try:
        yield world
    finally:
        await _close(world)


class TestDocker(InstancesContract):
    @pytest.fixture
    def world(self, box: DockerWorld) -> DockerWorld:
        return box


async def test_a_container_is_hardened_limited_and_published_on_loopback_only(box: DockerWorld) -> None:
    status = await started(box)
    assert status.upstream is not None
    assert status.upstream.secret is not None
    shown = await box.engine.get(f"containers/codehub-ws-{wid()}/json")
    host = shown["HostConfig"]
    assert host["CapDrop"] == ["ALL"]
    assert host["SecurityOpt"] == ["no-new-privileges:true"]
    assert not host["Privileged"]
    assert (host["Memory"], host["NanoCpus"], host["PidsLimit"]) == (256 << 20, 10**9, 100)
    bindings = [b for ports in shown["NetworkSettings"]["Ports"].values() for b in ports or []]
    assert {b["HostIp"] for b in bindings} == {"127.0.0.1"}
    assert (await box.ask(wid(), "id -u; echo $HOME; pwd; echo mine > mine; cat mine")).split() == [
        "1000", "/home/coder", "/home/coder", "mine",
    ]  # fmt: skip
    assert "NoNewPrivs:\t1" in await box.ask(wid(), "cat /proc/self/status")
    usage = await box.instances.usage(wid())
    assert usage is not None
    assert usage["memory_limit_bytes"] == 256 << 20


async def test_a_workspace_reaches_neither_this_machine_nor_another_workspace(box: DockerWorld) -> None:
    await asyncio.gather(started(box, 1), started(box, 2))
    other = await box.engine.get(f"containers/codehub-ws-{wid(2)}/json")
    network = other["NetworkSettings"]["Networks"][box.instances.network.name]
    with socket.socket() as service:
        service.bind(("0.0.0.0", 0))
        service.listen()
        port = service.getsockname()[1]
        for host, there in ((network["Gateway"], port), (network["IPAddress"], 8080)):
            script = (
                "import socket,sys\ns=socket.socket();s.settimeout(3)\n"
                f"try:\n s.connect(('{host}',{there}));print('REACHED')\nexcept OSError as e:\n print('closed',e)"
            )
            said = await box.ask(wid(1), f'python3 -c "{script}"')
            assert "closed" in said, (host, said)
    assert "docker.sock" not in await box.ask(wid(1), "ls /run /var/run / 2>&1")


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
    other = await _open(docker_engine, tmp_path / "other")
    try:
        assert await other.instances.list_all() == {}
        for attempt in (other.instances.stop, other.instances.delete):
            with pytest.raises(Conflict):
                await attempt(wid(), no_fence)
        with pytest.raises(Conflict):
            await other.instances.start(await other.spec(wid()), ignore_progress, no_fence)
        assert await box.instances.status(wid()) == mine
    finally:
        await _close(other)


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
