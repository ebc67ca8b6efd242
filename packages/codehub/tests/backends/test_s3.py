"""Archives in a real S3 server, and one that fails in every way a store can."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import obstore
import pytest

from codehub.adapters.objectstore.archives import ObjectArchives
from codehub.adapters.objectstore.store import Store
from codehub.domain.errors import ArchiveCorrupted, BackendDown, CodeHubError, Transient
from codehub.domain.model import HomeCtx, Progress
from codehub.ports.fence import ignore_progress, no_fence
from codehub.ports.homes import HomeState
from testing.codehub.contracts.archives import ArchivesContract, place
from testing.codehub.contracts.homes import HomesContract, key, provisioned
from testing.codehub.contracts.instances import until
from testing.codehub.faulty_s3 import FaultyS3, faulty_proxy
from testing.codehub.homes import LocalDirWorld, StoreWorld, local_world
from testing.codehub.objectstore import S3Server
from testing.codehub.trees import differences, fingerprint, make_rich_tree

pytestmark = pytest.mark.xdist_group("s3")


@pytest.fixture
def store(s3_server: S3Server) -> Iterator[Store]:
    store = s3_server.fresh()
    yield store
    store.close()


class TestS3Archives(ArchivesContract):
    @pytest.fixture
    def world(self, store: Store) -> StoreWorld:
        return StoreWorld(ObjectArchives(store), store)


class TestLocalDirToS3(HomesContract):
    @pytest.fixture
    def world(self, tmp_path: Path, store: Store) -> LocalDirWorld:
        return local_world(tmp_path, store)


async def test_a_large_home_goes_in_parts_and_comes_back(tmp_path: Path, store: Store) -> None:
    local = local_world(tmp_path, store)
    ctx = await local.homes.provision(key(), "inc-1", no_fence)
    make_rich_tree(
        local.files(key()), owner=(1_500_000_001, 1_500_000_001) if os.geteuid() == 0 else None, big=20_000_000
    )
    before = fingerprint(local.files(key()))
    receipt = await local.homes.archive(key(), ctx, "op-1", ignore_progress, no_fence)
    assert receipt.bytes > 16 << 20, "more than one part"
    await local.homes.deprovision(key(), ctx, no_fence)
    await local.homes.restore(key(), receipt.archive_key, "inc-2", ignore_progress, no_fence)
    assert differences(before, fingerprint(local.files(key()))) == []


def test_uploads_that_somebody_left_half_done_are_seen_and_ended(store: Store) -> None:
    def broken() -> Iterator[bytes]:
        yield os.urandom(9 << 20)
        raise Transient("the home went away")

    with pytest.raises(Transient, match="went away"):
        store.put_stream(place(1).archive_key, broken())
    assert store.size(place(1).archive_key) is None
    # As after kill -9: begun, never ended.
    writer = obstore.open_writer(store._store, place(1).archive_key, buffer_size=5 << 20)
    writer.write(os.urandom(11 << 20))
    writer.flush()
    assert list(store.paths()) == [place(1).archive_key]
    asyncio.run(ObjectArchives(store).remove(place(1), no_fence))
    assert list(store.paths()) == []


def test_removing_an_archive_ends_no_upload_of_another(store: Store) -> None:
    """Its place is the beginning of another's."""
    other = place(1, "op-10").archive_key
    writer = obstore.open_writer(store._store, other, buffer_size=5 << 20)
    writer.write(os.urandom(6 << 20))
    writer.flush()
    asyncio.run(ObjectArchives(store).remove(place(1, "op-1"), no_fence))
    assert list(store.paths()) == [other]


@pytest.fixture
async def faulty(s3_server: S3Server) -> AsyncIterator[FaultyS3]:
    async with faulty_proxy(s3_server) as proxy:
        yield proxy


@pytest.mark.parametrize(
    "mode", ["500", "403", "silent", "reset-up:1", "reset-up:100000", "reset-up:1900000", "reset-down:150"]
)
async def test_a_store_that_fails_loses_nothing_and_is_tried_again(
    tmp_path: Path, store: Store, faulty: FaultyS3, s3_server: S3Server, mode: str
) -> None:
    local = local_world(tmp_path, store)
    ctx = await provisioned(local, key())
    await local.write(key(), {"content": os.urandom(2_000_000)})
    before = fingerprint(local.files(key()))
    archive = f"{key().workspace_id}/op-1/home.tar.zst"

    @contextlib.contextmanager
    def through(how: str) -> Iterator[LocalDirWorld]:
        faulty.mode = how
        # Short only where nothing else ends the wait: a store that is well may be slow on a busy machine.
        timeout_s = 2 if how == "silent" else 60
        reached = Store(store.url, s3_server.options(faulty.endpoint, timeout_s=timeout_s, retries=1))
        try:
            yield local_world(tmp_path, reached)
        finally:
            reached.close()

    with through(mode) as failing, pytest.raises(Transient) as failure:
        await failing.homes.archive(key(), ctx, "op-1", ignore_progress, no_fence)
    assert isinstance(failure.value, BackendDown) == (mode != "403")
    assert differences(before, fingerprint(local.files(key()))) == []
    assert await local.archives.committed([archive]) == {archive: False}
    with through("") as well:
        await well.homes.archive(key(), ctx, "op-1", ignore_progress, no_fence)
        await well.homes.deprovision(key(), ctx, no_fence)
    with through("reset-down:600" if mode.startswith("reset") else mode) as failing, pytest.raises(CodeHubError):
        await failing.homes.restore(key(), archive, "inc-2", ignore_progress, no_fence)
    assert (await local.homes.status(key())).state is HomeState.ABSENT
    with through("") as well:
        await well.homes.restore(key(), archive, "inc-3", ignore_progress, no_fence)
    assert differences(before, fingerprint(local.files(key()))) == []


async def test_a_slow_store_takes_its_time_and_loses_nothing(
    tmp_path: Path, store: Store, faulty: FaultyS3, s3_server: S3Server
) -> None:
    faulty.mode = "slow"
    reached = Store(store.url, s3_server.options(faulty.endpoint))
    try:
        local = local_world(tmp_path, reached)
        ctx = await provisioned(local, key())
        await local.write(key(), {"content": os.urandom(600_000)})
        before = fingerprint(local.files(key()))
        seen: list[Progress] = []
        receipt = await local.homes.archive(key(), ctx, "op-1", seen.append, no_fence)
        assert {progress.step for progress in seen} == {"archive", "verify"}
        await local.homes.deprovision(key(), ctx, no_fence)
        # A caller that gives up cancels, and nothing is left behind.
        waiting = asyncio.create_task(
            local.homes.restore(key(), receipt.archive_key, "inc-2", ignore_progress, no_fence)
        )
        await until_true(lambda: bool(list(local.root.rglob(".staging-*"))))
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert not list(local.root.rglob(".staging-*"))
        await local.homes.restore(key(), receipt.archive_key, "inc-3", ignore_progress, no_fence)
        assert differences(before, fingerprint(local.files(key()))) == []
    finally:
        reached.close()


async def until_true(holds: Callable[[], bool]) -> None:
    async def has_begun() -> bool:
        return holds()

    await until(has_begun, "it begins")


async def test_a_truncated_object_is_corrupted_and_a_missing_one_too(tmp_path: Path, store: Store) -> None:
    local = local_world(tmp_path, store)
    ctx = await provisioned(local, key())
    receipt = await local.homes.archive(key(), ctx, "op-1", ignore_progress, no_fence)
    await local.homes.deprovision(key(), ctx, no_fence)
    whole = store.get(receipt.archive_key)
    assert whole is not None
    store.put(receipt.archive_key, whole[:-10])
    with pytest.raises(ArchiveCorrupted):
        await local.homes.restore(key(), receipt.archive_key, "inc-2", ignore_progress, no_fence)
    store.delete(receipt.archive_key)
    with pytest.raises(ArchiveCorrupted):
        await local.homes.restore(key(), receipt.archive_key, "inc-2", ignore_progress, no_fence)
    assert (await local.homes.status(key())).state is HomeState.ABSENT
    store.put(receipt.archive_key, whole)
    assert (await local.homes.restore(key(), receipt.archive_key, "inc-2", ignore_progress, no_fence)) == HomeCtx(
        "inc-2", receipt.archive_key
    )


async def test_a_store_that_is_not_there_is_a_backend_that_is_down(s3_server: S3Server) -> None:
    with_nobody = Store("s3://nobody/x", s3_server.options("http://127.0.0.1:9", timeout_s=2, retries=0))
    with pytest.raises(BackendDown):
        await ObjectArchives(with_nobody).ping()
    with_nobody.close()
