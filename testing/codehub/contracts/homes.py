"""The contract of every home backend."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from typing import Protocol

import pytest

from codehub.domain.errors import ArchiveCorrupted, Conflict, DataLost, FenceLost, NotFound
from codehub.domain.model import HomeCtx, Progress
from codehub.ports.archives import Archives
from codehub.ports.fence import ignore_progress, no_fence
from codehub.ports.homes import HomeKey, Homes, HomeState, HomeStatus
from testing.codehub.contracts.archives import lost_after

FILES: Mapping[str, bytes] = {"notes.txt": b"what a user wrote\n", "src/main.py": b"print('hello')\n" * 50}


class HomesWorld(Protocol):
    @property
    def homes(self) -> Homes: ...

    @property
    def archives(self) -> Archives: ...

    async def write(self, home: HomeKey, files: Mapping[str, bytes]) -> None:
        """Write files as the workspace would."""
        ...

    async def read(self, home: HomeKey) -> Mapping[str, bytes]:
        """Return every file in the home."""
        ...

    async def lose(self, home: HomeKey) -> None:
        """Remove the volume without the backend's knowledge."""
        ...


def key(number: int = 1) -> HomeKey:
    workspace_id = f"0190a000-0000-7000-8000-{number:012d}"
    return HomeKey(workspace_id, f"users/ada/workspaces/{workspace_id}/home")


async def provisioned(world: HomesWorld, home: HomeKey, incarnation: str = "inc-1") -> HomeCtx:
    ctx = await world.homes.provision(home, incarnation, no_fence)
    await world.write(home, FILES)
    return ctx


class HomesContract:
    async def test_a_home_is_absent_until_it_is_provisioned_and_then_whole(self, world: HomesWorld) -> None:
        await world.homes.ping()
        assert await world.homes.status(key()) == HomeStatus(HomeState.ABSENT)
        ctx = await world.homes.provision(key(), "inc-1", no_fence)
        assert ctx == HomeCtx("inc-1", None)
        assert await world.homes.status(key()) == HomeStatus(HomeState.COMPLETE, ctx)
        assert await world.read(key()) == {}

    async def test_provisioning_again_keeps_what_is_there(self, world: HomesWorld) -> None:
        first = await provisioned(world, key())
        assert await world.homes.provision(key(), "inc-2", no_fence) == first
        assert await world.read(key()) == FILES

    async def test_all_homes_are_listed_by_workspace(self, world: HomesWorld) -> None:
        one = await world.homes.provision(key(1), "inc-1", no_fence)
        two = await world.homes.provision(key(2), "inc-2", no_fence)
        whole = HomeState.COMPLETE
        assert await world.homes.list_all() == {
            key(1).workspace_id: HomeStatus(whole, one),
            key(2).workspace_id: HomeStatus(whole, two),
        }

    async def test_the_size_of_a_home_grows_with_it_or_is_unknown(self, world: HomesWorld) -> None:
        assert await world.homes.size(key()) is None, "what is not there has no size"
        await provisioned(world, key())
        before = await world.homes.size(key())
        await world.write(key(), {"large": os.urandom(1 << 20)})
        after = await world.homes.size(key())
        assert (before is None) == (after is None)
        if before is not None and after is not None:
            assert 1 << 20 <= after - before < 2 << 20

    async def test_what_was_archived_comes_back_with_its_marker(self, world: HomesWorld) -> None:
        ctx = await provisioned(world, key())
        seen: list[Progress] = []
        receipt = await world.homes.archive(key(), ctx, "op-1", seen.append, no_fence)
        assert receipt.archive_key == f"{key().workspace_id}/op-1/home.tar.zst"
        assert receipt.op_id == "op-1"
        assert receipt.bytes > 0
        assert len(receipt.sha256) == 64
        assert seen, "an archive tells how far it is"
        assert await world.archives.committed([receipt.archive_key]) == {receipt.archive_key: True}
        assert await world.read(key()) == FILES, "archiving leaves the volume alone"
        await world.homes.deprovision(key(), ctx, no_fence)
        assert (await world.homes.status(key())).state is HomeState.ABSENT
        restored = await world.homes.restore(key(), receipt.archive_key, "inc-2", seen.append, no_fence)
        assert restored == HomeCtx("inc-2", receipt.archive_key)
        assert await world.homes.status(key()) == HomeStatus(HomeState.COMPLETE, restored)
        assert await world.read(key()) == FILES

    async def test_an_archive_that_is_there_is_not_made_again(self, world: HomesWorld) -> None:
        ctx = await provisioned(world, key())
        first = await world.homes.archive(key(), ctx, "op-1", ignore_progress, no_fence)
        await world.write(key(), {"later.txt": b"after the archive"})
        assert await world.homes.archive(key(), ctx, "op-1", ignore_progress, no_fence) == first
        second = await world.homes.archive(key(), ctx, "op-2", ignore_progress, no_fence)
        assert second.sha256 != first.sha256

    async def test_an_empty_home_can_be_archived_without_a_volume(self, world: HomesWorld) -> None:
        receipt = await world.homes.archive_empty(key(), "op-1", no_fence)
        assert receipt.bytes < 200
        assert await world.homes.archive_empty(key(), "op-1", no_fence) == receipt
        assert (await world.homes.status(key())).state is HomeState.ABSENT
        await world.homes.restore(key(), receipt.archive_key, "inc-1", ignore_progress, no_fence)
        assert await world.read(key()) == {}

    async def test_restoring_never_replaces_a_whole_volume(self, world: HomesWorld) -> None:
        ctx = await provisioned(world, key())
        receipt = await world.homes.archive(key(), ctx, "op-1", ignore_progress, no_fence)
        await world.write(key(), {"notes.txt": b"newer"})
        with pytest.raises(Conflict):
            await world.homes.restore(key(), receipt.archive_key, "inc-2", ignore_progress, no_fence)
        assert (await world.read(key()))["notes.txt"] == b"newer"
        await world.homes.deprovision(key(), ctx, no_fence)
        restored = await world.homes.restore(key(), receipt.archive_key, "inc-2", ignore_progress, no_fence)
        await world.write(key(), {"notes.txt": b"newest"})
        again = await world.homes.restore(key(), receipt.archive_key, "inc-3", ignore_progress, no_fence)
        assert again == restored, "restored from this very archive already"
        assert (await world.read(key()))["notes.txt"] == b"newest"

    async def test_an_archive_that_was_replaced_is_not_restored(self, world: HomesWorld) -> None:
        ctx = await provisioned(world, key())
        receipt = await world.homes.archive(key(), ctx, "op-1", ignore_progress, no_fence)
        await world.homes.deprovision(key(), ctx, no_fence)
        other = hashlib.sha256(b"another archive").hexdigest()
        with pytest.raises(ArchiveCorrupted):
            await world.homes.restore(key(), receipt.archive_key, "inc-2", ignore_progress, no_fence, other)
        assert (await world.homes.status(key())).state is not HomeState.COMPLETE
        await world.homes.restore(key(), receipt.archive_key, "inc-3", ignore_progress, no_fence, receipt.sha256)
        assert await world.read(key()) == FILES

    async def test_restoring_what_is_not_there_leaves_nothing(self, world: HomesWorld) -> None:
        missing = f"{key().workspace_id}/op-9/home.tar.zst"
        with pytest.raises(NotFound):
            await world.homes.restore(key(), missing, "inc-1", ignore_progress, no_fence)
        assert await world.homes.list_all() == {}

    async def test_only_the_incarnation_asked_for_is_removed(self, world: HomesWorld) -> None:
        ctx = await provisioned(world, key())
        with pytest.raises(FenceLost):
            await world.homes.deprovision(key(), HomeCtx("inc-0"), no_fence)
        with pytest.raises(FenceLost):
            await world.homes.archive(key(), HomeCtx("inc-0"), "op-1", ignore_progress, no_fence)
        assert await world.read(key()) == FILES
        await world.homes.deprovision(key(), ctx, no_fence)
        await world.homes.deprovision(key(), ctx, no_fence)
        assert await world.homes.list_all() == {}

    async def test_a_lost_fence_changes_nothing(self, world: HomesWorld) -> None:
        with pytest.raises(FenceLost):
            await world.homes.provision(key(2), "inc-1", lost_after(0))
        assert (await world.homes.status(key(2))).state is not HomeState.COMPLETE
        ctx = await provisioned(world, key())
        with pytest.raises(FenceLost):
            await world.homes.archive(key(), ctx, "op-1", ignore_progress, lost_after(0))
        archive = f"{key().workspace_id}/op-1/home.tar.zst"
        assert await world.archives.committed([archive]) == {archive: False}
        with pytest.raises(FenceLost):
            await world.homes.deprovision(key(), ctx, lost_after(0))
        assert await world.homes.status(key()) == HomeStatus(HomeState.COMPLETE, ctx)
        assert await world.read(key()) == FILES

    async def test_a_lost_fence_never_lets_a_restore_become_whole(self, world: HomesWorld) -> None:
        receipt = await world.homes.archive_empty(key(), "op-1", no_fence)
        with pytest.raises(FenceLost):
            await world.homes.restore(key(), receipt.archive_key, "inc-1", ignore_progress, lost_after(0))
        assert (await world.homes.status(key())).state is not HomeState.COMPLETE
        await world.homes.restore(key(), receipt.archive_key, "inc-2", ignore_progress, no_fence)
        assert (await world.homes.status(key())).ctx == HomeCtx("inc-2", receipt.archive_key)

    async def test_a_volume_that_vanished_is_said_to_be_lost(self, world: HomesWorld) -> None:
        ctx = await provisioned(world, key())
        await world.lose(key())
        assert (await world.homes.status(key())).state is HomeState.ABSENT
        with pytest.raises(DataLost):
            await world.homes.archive(key(), ctx, "op-1", ignore_progress, no_fence)
        await world.homes.deprovision(key(), ctx, no_fence)

    async def test_purge_and_sweep_are_repeatable_and_sweep_keeps_the_home(self, world: HomesWorld) -> None:
        ctx = await provisioned(world, key())
        await world.homes.sweep(key(), no_fence)
        await world.homes.sweep(key(), no_fence)
        assert await world.homes.status(key()) == HomeStatus(HomeState.COMPLETE, ctx)
        assert await world.read(key()) == FILES
        await world.homes.purge(key(), no_fence)
        await world.homes.purge(key(), no_fence)
        assert await world.homes.list_all() == {}
        await world.homes.sweep(key(), no_fence)
