"""A homes' or archives' disk that is not mounted today: what is on it is Unknown, never lost, and nothing is made there."""

from __future__ import annotations

from pathlib import Path

import pytest

from codehub.adapters.homes.local_dir import LocalDirHomes
from codehub.adapters.homes.mark import MARK, HomesMark
from codehub.adapters.objectstore.archives import ArchiveStoreId, ObjectArchives
from codehub.adapters.objectstore.store import Store
from codehub.domain.errors import BackendDown
from codehub.ports.fence import ignore_progress, no_fence
from codehub.ports.homes import HomeState
from testing.codehub.contracts.homes import key


async def test_an_empty_mount_point_is_a_backend_that_is_down_and_nothing_is_made_in_it(tmp_path: Path) -> None:
    mark = HomesMark(tmp_path / "homes")
    homes = LocalDirHomes(tmp_path / "homes", Store((tmp_path / "archives").as_uri()), mark=mark)
    await homes.ping()
    assert await mark.read_id() is None, "only a coordinator that leads gives a directory its id"
    await mark.write_id("store-1")
    mark.expect("store-1")
    ctx = await homes.provision(key(), "inc-1", no_fence)
    (tmp_path / "homes").rename(tmp_path / "disk")
    (tmp_path / "homes").mkdir()
    for attempt in (
        homes.status(key()),
        homes.list_all(),
        homes.ping(),
        homes.provision(key(), "inc-2", no_fence),
        homes.archive(key(), ctx, "op-1", ignore_progress, no_fence),
        homes.deprovision(key(), ctx, no_fence),
        homes.purge(key(), no_fence),
    ):
        with pytest.raises(BackendDown, match="is its disk mounted"):
            await attempt
    assert list((tmp_path / "homes").iterdir()) == []
    (tmp_path / "homes" / MARK).write_text("store-2\n")
    with pytest.raises(BackendDown):
        await homes.status(key())
    (tmp_path / "homes" / MARK).unlink()
    (tmp_path / "homes").rmdir()
    (tmp_path / "disk").rename(tmp_path / "homes")
    assert (await homes.status(key())).state is HomeState.COMPLETE
    mark.hold("not known to be ours")
    with pytest.raises(BackendDown, match="not known to be ours"):
        await homes.status(key())


async def test_an_archive_directory_without_its_disk_is_down(tmp_path: Path) -> None:
    store = Store((tmp_path / "archives").as_uri())
    archives, identity = ObjectArchives(store), ArchiveStoreId(store)
    await identity.write_id("store-1")
    identity.expect("store-1")
    home_key = "w-1/op-1/home.tar.zst"
    assert await archives.committed([home_key]) == {home_key: False}
    (tmp_path / "archives").rename(tmp_path / "disk")
    (tmp_path / "archives").mkdir()
    for attempt in (archives.committed([home_key]), archives.ping(), archives.receipts("w-1")):
        with pytest.raises(BackendDown, match="is its disk mounted"):
            await attempt
