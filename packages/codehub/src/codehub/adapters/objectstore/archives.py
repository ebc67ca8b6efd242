"""The Archives port over a Store: which archives are committed, which places there are, and their removal."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping

from codehub.adapters.objectstore.layout import META_SUFFIX, OWNER_KEY, parse_key, place_of
from codehub.adapters.objectstore.store import Store
from codehub.domain.errors import Denied
from codehub.ports.archives import ArchivePlace
from codehub.ports.fence import Fence

_LOOKS_AT_ONCE = 16


class ObjectArchives:
    def __init__(self, store: Store) -> None:
        self._store = store

    async def ping(self) -> None:
        await asyncio.to_thread(self._store.ping)

    async def claim(self, installation_id: str) -> None:
        await asyncio.to_thread(self._claim, installation_id)

    def _claim(self, installation_id: str) -> None:
        found = self._store.get(OWNER_KEY)
        if found is None:
            self._store.put(OWNER_KEY, installation_id.encode())
            found = self._store.get(OWNER_KEY)
        owner = (found or b"").decode("utf-8", "replace").strip()
        if owner != installation_id:
            raise Denied(
                f"the archive store {self._store.url} belongs to the CodeHub installation {owner!r}, not to this one "
                f"({installation_id!r}): set CODEHUB_ARCHIVE_URL to another location"
            )

    async def committed(self, archive_keys: Collection[str]) -> Mapping[str, bool]:
        slots = asyncio.Semaphore(_LOOKS_AT_ONCE)

        async def look(key: str) -> bool:
            async with slots:
                return await asyncio.to_thread(self._committed, key)

        keys = list(dict.fromkeys(archive_keys))
        return dict(zip(keys, await asyncio.gather(*map(look, keys)), strict=True))

    def _committed(self, key: str) -> bool:
        parse_key(key)
        return self._store.size(key + META_SUFFIX) is not None and self._store.size(key) is not None

    async def list_places(self) -> AsyncIterator[ArchivePlace]:
        for place in await asyncio.to_thread(self._places):
            yield place

    def _places(self) -> list[ArchivePlace]:
        found: dict[ArchivePlace, None] = {}
        for path in self._store.paths():
            place = place_of(path)
            if place is not None:
                found[place] = None
        return list(found)

    async def remove(self, place: ArchivePlace, fence: Fence) -> None:
        await asyncio.to_thread(self._remove, place, fence)

    def _remove(self, place: ArchivePlace, fence: Fence) -> None:
        parse_key(place.archive_key)
        fence()
        # Meta first: what is half-removed must not look committed.
        self._store.delete(place.archive_key + META_SUFFIX)
        fence()
        self._store.delete(place.archive_key)
        fence()
        self._store.clear(f"{place.workspace_id}/{place.op_id}")
