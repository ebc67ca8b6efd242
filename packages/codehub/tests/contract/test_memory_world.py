"""The simulation's instances, homes and archives pass the suites of the real ones."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from codehub.domain.profiles import AppProfile
from codehub.ports.archives import ArchivePlace
from codehub.ports.homes import HomeKey
from codehub.ports.instances import InstanceSpec, Mount, MountKind
from testing.codehub.contracts.archives import ArchivesContract
from testing.codehub.contracts.homes import HomesContract
from testing.codehub.contracts.instances import InstancesContract
from testing.codehub.memory.world import MemoryArchives, MemoryHomes, MemoryInstances, StoredArchive


class World:
    def __init__(self) -> None:
        self.archives = MemoryArchives()
        self.homes = MemoryHomes(self.archives)
        self.instances = MemoryInstances()

    async def put_data(self, place: ArchivePlace) -> None:
        self.archives.places.setdefault(place, StoredArchive()).files = {}

    async def put_meta(self, place: ArchivePlace) -> None:
        self.archives.places.setdefault(place, StoredArchive()).meta = True

    async def write(self, home: HomeKey, files: Mapping[str, bytes]) -> None:
        self.homes.volumes[home.workspace_id].files.update(files)

    async def read(self, home: HomeKey) -> Mapping[str, bytes]:
        return self.homes.volumes[home.workspace_id].files

    async def lose(self, home: HomeKey) -> None:
        del self.homes.volumes[home.workspace_id]

    async def spec(self, workspace_id: str, variant: str = "a") -> InstanceSpec:
        return InstanceSpec(workspace_id, variant, AppProfile(variant), Mount(MountKind.DIR, f"/{workspace_id}"))

    async def crash(self, workspace_id: str) -> None:
        self.instances.end(workspace_id, "ExitCode:1")


class _InMemory:
    @pytest.fixture
    def world(self) -> World:
        return World()


class TestArchives(_InMemory, ArchivesContract):
    pass


class TestHomes(_InMemory, HomesContract):
    pass


class TestInstances(_InMemory, InstancesContract):
    pass
