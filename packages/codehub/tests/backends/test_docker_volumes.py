"""Docker volumes as homes: the contract, a rich tree, and kill -9 at the named points."""

from __future__ import annotations

import asyncio
import io
import tarfile
import uuid
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from codehub.adapters.docker.engine import Engine
from codehub.adapters.homes.docker_volume import DockerVolumeHomes, volume_name
from codehub.adapters.homes.volume_copy import CopyContainer
from codehub.adapters.objectstore.archives import ObjectArchives
from codehub.adapters.objectstore.store import Store
from codehub.domain.errors import ArchiveCorrupted
from codehub.domain.model import HomeCtx
from codehub.ports.fence import ignore_progress, no_fence
from codehub.ports.homes import HomeKey, HomeState
from testing.contracts.homes import HomesContract, key
from testing.docker import DockerEngine
from testing.killpoints import ARCHIVE_POINTS, REMOVE_POINTS, RESTORE_POINTS, killed
from testing.trees import differences, fingerprint, make_rich_tree

pytestmark = [pytest.mark.needs("docker", "root"), pytest.mark.xdist_group("interfaces")]
ARCHIVE_KEY = f"{key().workspace_id}/op-1/home.tar.zst"
OWNER = (1000, 1000)


@dataclass(frozen=True)
class VolumeWorld:
    docker: DockerEngine
    engine: Engine
    homes: DockerVolumeHomes
    archives: ObjectArchives
    store: Store

    def files(self, home: HomeKey) -> Path:
        """Where the engine of the tests keeps it: only tests know."""
        return self.docker.base / "data/volumes" / volume_name(home.workspace_id) / "_data"

    async def write(self, home: HomeKey, files: Mapping[str, bytes]) -> None:
        for name, content in files.items():
            path = self.files(home) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)

    async def read(self, home: HomeKey) -> Mapping[str, bytes]:
        async with CopyContainer(self.engine, home.workspace_id, volume_name(home.workspace_id)) as copy:
            async with copy.get() as response:
                raw = await response.read()
        with tarfile.open(fileobj=io.BytesIO(raw)) as opened:
            found = {m.name.removeprefix("volume/"): opened.extractfile(m) for m in opened if m.isfile()}
            return {name: file.read() for name, file in found.items() if file is not None}

    async def lose(self, home: HomeKey) -> None:
        await self.engine.remove(f"volumes/{volume_name(home.workspace_id)}")


@pytest.fixture
async def volumes(docker_engine: DockerEngine, tmp_path: Path) -> AsyncIterator[VolumeWorld]:
    engine = Engine(docker_engine.host, f"test-{uuid.uuid4()}")
    store = Store((tmp_path / "archives").as_uri())
    world = VolumeWorld(docker_engine, engine, DockerVolumeHomes(engine, store), ObjectArchives(store), store)
    try:
        yield world
    finally:
        await engine.close()
        await asyncio.to_thread(docker_engine.remove_everything)


class TestDockerVolumes(HomesContract):
    @pytest.fixture
    def world(self, volumes: VolumeWorld) -> VolumeWorld:
        return volumes


def job(world: VolumeWorld, do: str, point: str, incarnation: str) -> dict[str, str]:
    return {
        "do": do, "point": point, "store": world.store.url, "docker": world.docker.host, "op": "op-1",
        "installation": world.engine.installation_id, "workspace": key().workspace_id, "store_key": key().store_key,
        "incarnation": incarnation, "key": ARCHIVE_KEY,
    }  # fmt: skip


async def test_killed_at_every_point_the_volume_comes_back_as_it_was(volumes: VolumeWorld) -> None:
    ctx = await volumes.homes.provision(key(), "inc-0", no_fence)
    make_rich_tree(volumes.files(key()), owner=OWNER, big=2_000_000)
    before = fingerprint(volumes.files(key()), exact=False)
    receipt = await volumes.homes.archive(key(), ctx, "op-0", ignore_progress, no_fence)
    await volumes.homes.deprovision(key(), ctx, no_fence)
    for number, point in enumerate([*ARCHIVE_POINTS, *REMOVE_POINTS]):
        ctx = await volumes.homes.restore(key(), receipt.archive_key, f"inc-{number}", ignore_progress, no_fence)
        assert differences(before, fingerprint(volumes.files(key()), exact=False)) == [], point
        assert await killed(job(volumes, "archive", point, ctx.incarnation)), point
        if (await volumes.homes.status(key())).state is HomeState.WHOLE:
            await volumes.homes.archive(key(), ctx, "op-1", ignore_progress, no_fence)
        assert await volumes.archives.committed([ARCHIVE_KEY]) == {ARCHIVE_KEY: True}, point
        await volumes.homes.deprovision(key(), ctx, no_fence)
        assert await volumes.homes.list_all() == {}
        await volumes.archives.remove(
            next(iter([p async for p in volumes.archives.list_places() if p.op_id == "op-1"])), no_fence
        )
    for number, point in enumerate(RESTORE_POINTS):
        again = job(volumes, "restore", point, f"inc-r{number}") | {"key": receipt.archive_key}
        assert await killed(again), point
        state = (await volumes.homes.status(key())).state
        assert state is (HomeState.WHOLE if point == "restore:swapped" else HomeState.INCOMPLETE), point
        ctx = await volumes.homes.restore(key(), receipt.archive_key, "inc-last", ignore_progress, no_fence)
        assert differences(before, fingerprint(volumes.files(key()), exact=False)) == [], point
        await volumes.homes.deprovision(key(), ctx, no_fence)
    listed = await volumes.engine.get("containers/json", all="true")
    assert listed == [], "no copy container is left"


async def test_a_damaged_archive_leaves_no_volume(volumes: VolumeWorld) -> None:
    receipt = await volumes.homes.archive_empty(key(), "op-1", no_fence)
    volumes.store.put(receipt.archive_key, b"not what it was")
    with pytest.raises(ArchiveCorrupted):
        await volumes.homes.restore(key(), receipt.archive_key, "inc-1", ignore_progress, no_fence)
    assert await volumes.homes.list_all() == {}


async def test_a_new_volume_belongs_to_the_containers_user(volumes: VolumeWorld) -> None:
    assert await volumes.homes.provision(key(), "inc-1", no_fence) == HomeCtx("inc-1")
    found = volumes.files(key()).stat()
    assert (found.st_uid, found.st_mode & 0o777) == (1000, 0o700)
