"""The Archives port over a Store: lists committed archives and their places, and removes them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping, Sequence

from codehub.adapters.objectstore.layout import META_SUFFIX, OWNER_KEY, parse_key, place_of
from codehub.adapters.objectstore.store import Store
from codehub.adapters.objectstore.transfer import find_receipt
from codehub.adapters.own_threads import OwnThreads
from codehub.domain.errors import Denied
from codehub.ports.archives import ArchivePlace
from codehub.ports.fence import Fence
from codehub.ports.homes import ArchiveReceipt

_CHECKS_AT_ONCE = 16


class ObjectArchives:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._threads = OwnThreads("codehub-archives", _CHECKS_AT_ONCE)

    async def ping(self) -> None:
        await self._threads.run(self._store.ping)

    async def claim(self, installation_id: str) -> None:
        await self._threads.run(lambda: self._claim(installation_id))

    def _claim(self, installation_id: str) -> None:
        found = self._store.get(OWNER_KEY)
        if found is None:
            self._store.put_new(OWNER_KEY, installation_id.encode())
            found = self._store.get(OWNER_KEY)
        owner = (found or b"").decode("utf-8", "replace").strip()
        if owner != installation_id:
            raise Denied(
                f"the archive store {self._store.url} belongs to the CodeHub installation {owner!r}, not to this one "
                f"({installation_id!r}): set CODEHUB_ARCHIVE_URL to another location"
            )

    async def committed(self, archive_keys: Collection[str]) -> Mapping[str, bool]:
        async def exists(key: str) -> bool:
            return await self._threads.run(lambda: self._committed(key))

        keys = list(dict.fromkeys(archive_keys))
        return dict(zip(keys, await asyncio.gather(*map(exists, keys)), strict=True))

    def _committed(self, key: str) -> bool:
        parse_key(key)
        return self._store.size(key + META_SUFFIX) is not None and self._store.size(key) is not None

    async def receipts(self, workspace_id: str) -> Sequence[ArchiveReceipt]:
        return await self._threads.run(lambda: self._receipts(workspace_id))

    def _receipts(self, workspace_id: str) -> list[ArchiveReceipt]:
        places = {place_of(path) for path in self._store.paths(f"{workspace_id}/")}
        found = []
        for place in sorted((one for one in places if one is not None), key=lambda one: one.op_id):
            if (receipt := find_receipt(self._store, place.archive_key)) is not None:
                found.append(receipt)
        return found

    async def list_places(self) -> AsyncIterator[ArchivePlace]:
        for place in await self._threads.run(self._places):
            yield place

    def _places(self) -> list[ArchivePlace]:
        found: dict[ArchivePlace, None] = {}
        for path in self._store.paths():
            place = place_of(path)
            if place is not None:
                found[place] = None
        return list(found)

    async def remove(self, place: ArchivePlace, fence: Fence) -> None:
        await self._threads.run(lambda: self._remove(place, fence))

    def _remove(self, place: ArchivePlace, fence: Fence) -> None:
        parse_key(place.archive_key)
        fence()
        # Meta first: a partly removed archive must not look committed.
        self._store.delete(place.archive_key + META_SUFFIX)
        fence()
        self._store.delete(place.archive_key)
        fence()
        self._store.clear(f"{place.workspace_id}/{place.op_id}")


class ArchiveStoreId:
    """Implements ports.stores.IdentifiedStore for an archive store: the store's own id, and its installation's."""

    kind = "archives"
    takes_new = True

    def __init__(self, store: Store) -> None:
        self._store = store

    @property
    def place(self) -> str:
        return self._store.place

    async def read_id(self) -> str | None:
        return await asyncio.to_thread(self._store.read_id)

    async def write_id(self, store_id: str) -> None:
        await asyncio.to_thread(self._store.write_id, store_id)

    def expect(self, store_id: str) -> None:
        self._store.expect(store_id)

    def hold(self, why: str) -> None:
        self._store.hold(why)
