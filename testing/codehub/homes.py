"""A world of local-dir homes for the contract suites, and the points at which a home's operations can be killed."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from codehub.adapters.filesystem.remove import remove_tree
from codehub.adapters.homes.local_dir import LocalDirHomes
from codehub.adapters.objectstore.archives import ObjectArchives
from codehub.adapters.objectstore.layout import META_SUFFIX
from codehub.adapters.objectstore.store import Store
from codehub.ports.archives import ArchivePlace
from codehub.ports.homes import HomeKey


@dataclass(frozen=True)
class LocalDirWorld:
    """The world for HomesContract."""

    root: Path
    homes: LocalDirHomes
    archives: ObjectArchives
    store: Store

    def files(self, home: HomeKey) -> Path:
        return Path(self.homes.mount(home).source)

    async def write(self, home: HomeKey, files: Mapping[str, bytes]) -> None:
        for name, content in files.items():
            path = self.files(home) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)

    async def read(self, home: HomeKey) -> Mapping[str, bytes]:
        base = self.files(home)
        return {str(path.relative_to(base)): path.read_bytes() for path in base.rglob("*") if path.is_file()}

    async def lose(self, home: HomeKey) -> None:
        remove_tree(self.files(home).parent)


@dataclass(frozen=True)
class StoreWorld:
    """The world for ArchivesContract."""

    archives: ObjectArchives
    store: Store

    async def put_data(self, place: ArchivePlace) -> None:
        await asyncio.to_thread(self.store.put, place.archive_key, b"data")

    async def put_meta(self, place: ArchivePlace) -> None:
        await asyncio.to_thread(self.store.put, place.archive_key + META_SUFFIX, b"sha256:")


def local_world(base: Path, store: Store) -> LocalDirWorld:
    root = base / "homes"
    root.mkdir(parents=True, exist_ok=True)
    return LocalDirWorld(root, LocalDirHomes(root, store), ObjectArchives(store), store)
