"""Docker volumes as homes: the contract, a rich tree, and kill -9 at the named points."""

from __future__ import annotations

import asyncio
import io
import os
import tarfile
import uuid
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from codehub.adapters.docker.engine import Engine
from codehub.adapters.docker.volume_copy import copy_container
from codehub.adapters.filesystem.ownership import container_uid_for
from codehub.adapters.homes.docker_volume import DockerVolumeHomes, volume_name
from codehub.adapters.objectstore.archives import ObjectArchives
from codehub.adapters.objectstore.store import Store
from codehub.domain.errors import ArchiveCorrupted
from codehub.domain.model import HomeCtx
from codehub.ports.fence import ignore_progress, no_fence
from codehub.ports.homes import HomeKey
from testing.codehub.contracts.homes import HomesContract, key
from testing.codehub.docker import DockerEngine

pytestmark = [pytest.mark.needs("docker", "root"), pytest.mark.xdist_group("docker")]


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
        async with copy_container(self.engine, home.workspace_id, volume_name(home.workspace_id)) as door:
            async with door.get() as response:
                raw = await response.read()
        with tarfile.open(fileobj=io.BytesIO(raw)) as opened:
            found = {m.name.removeprefix("volume/"): opened.extractfile(m) for m in opened if m.isfile()}
            return {name: file.read() for name, file in found.items() if file is not None}

    async def lose(self, home: HomeKey) -> None:
        """As somebody who means it: the engine refuses while its hold is there."""
        for item in await self.engine.get("containers/json", all="true"):
            await self.engine.remove(f"containers/{item['Id']}", force="true")
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


async def test_a_damaged_archive_leaves_no_volume(volumes: VolumeWorld) -> None:
    receipt = await volumes.homes.archive_empty(key(), "op-1", no_fence)
    volumes.store.put(receipt.archive_key, b"not what it was")
    with pytest.raises(ArchiveCorrupted):
        await volumes.homes.restore(key(), receipt.archive_key, "inc-1", ignore_progress, no_fence)
    assert await volumes.homes.list_all() == {}


async def test_a_volume_is_measured_where_its_directory_can_be_read(volumes: VolumeWorld) -> None:
    await volumes.homes.provision(key(), "inc-1", no_fence)
    await volumes.write(key(), {"large": os.urandom(1 << 20)})
    found = await volumes.homes.size(key())
    assert found is not None
    assert 1 << 20 <= found < 2 << 20


async def test_a_new_volume_belongs_to_the_containers_user(volumes: VolumeWorld) -> None:
    assert await volumes.homes.provision(key(), "inc-1", no_fence) == HomeCtx("inc-1")
    found = volumes.files(key()).stat()
    assert (found.st_uid, found.st_mode & 0o777) == (container_uid_for(key().workspace_id), 0o700)
