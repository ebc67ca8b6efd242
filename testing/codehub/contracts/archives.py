"""The contract of every archive store."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import pytest

from codehub.domain.errors import Denied, FenceLost
from codehub.ports.archives import ArchivePlace, Archives
from codehub.ports.fence import no_fence


class ArchivesWorld(Protocol):
    @property
    def archives(self) -> Archives: ...

    async def put_data(self, place: ArchivePlace) -> None:
        """Store the data of an archive, without its meta."""
        ...

    async def put_meta(self, place: ArchivePlace) -> None: ...


def place(number: int, op: str = "op-1") -> ArchivePlace:
    workspace_id = f"0190a000-0000-7000-8000-{number:012d}"
    return ArchivePlace(workspace_id, op, f"{workspace_id}/{op}/home.tar.zst")


def lost_after(calls: int) -> Callable[[], None]:
    """Return a fence that holds for this many checks."""
    left = calls

    def fence() -> None:
        nonlocal left
        if left == 0:
            raise FenceLost("the term is over")
        left -= 1

    return fence


class ArchivesContract:
    async def test_only_data_with_its_meta_is_committed(self, world: ArchivesWorld) -> None:
        whole, data_only, meta_only, nothing = (place(n) for n in range(4))
        await world.put_data(whole)
        await world.put_meta(whole)
        await world.put_data(data_only)
        await world.put_meta(meta_only)
        keys = [p.archive_key for p in (whole, data_only, meta_only, nothing)]
        assert await world.archives.committed(keys) == dict(zip(keys, [True, False, False, False], strict=True))
        assert await world.archives.committed([]) == {}

    async def test_every_place_is_listed_once_whole_or_not(self, world: ArchivesWorld) -> None:
        await world.archives.claim("installation-a")
        await world.put_data(place(1))
        await world.put_meta(place(1))
        await world.put_data(place(1, "op-2"))
        await world.put_meta(place(2))
        listed = [p async for p in world.archives.list_places()]
        assert sorted(listed, key=lambda p: p.archive_key) == [place(1), place(1, "op-2"), place(2)]

    async def test_removing_takes_the_whole_place_and_only_it(self, world: ArchivesWorld) -> None:
        for one in (place(1), place(1, "op-2"), place(2)):
            await world.put_data(one)
            await world.put_meta(one)
        await world.archives.remove(place(1), no_fence)
        await world.archives.remove(place(1), no_fence)
        assert {p async for p in world.archives.list_places()} == {place(1, "op-2"), place(2)}
        keys = [place(1).archive_key, place(1, "op-2").archive_key]
        assert await world.archives.committed(keys) == {keys[0]: False, keys[1]: True}

    async def test_a_lost_fence_stops_a_removal_and_what_is_half_removed_is_not_committed(
        self, world: ArchivesWorld
    ) -> None:
        await world.put_data(place(1))
        await world.put_meta(place(1))
        with pytest.raises(FenceLost):
            await world.archives.remove(place(1), lost_after(0))
        assert await world.archives.committed([place(1).archive_key]) == {place(1).archive_key: True}
        with pytest.raises(FenceLost):
            await world.archives.remove(place(1), lost_after(1))
        assert await world.archives.committed([place(1).archive_key]) == {place(1).archive_key: False}

    async def test_a_store_belongs_to_one_installation(self, world: ArchivesWorld) -> None:
        await world.archives.ping()
        await world.archives.claim("installation-a")
        await world.archives.claim("installation-a")
        with pytest.raises(Denied, match="installation-a"):
            await world.archives.claim("installation-b")
