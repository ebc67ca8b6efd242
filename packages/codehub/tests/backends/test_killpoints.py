"""Kill -9 at every named point of a home's life, then the same operation again: the home is there, bit by bit, once."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from codehub.adapters.objectstore.store import Store
from codehub.domain.model import HomeCtx
from codehub.ports.fence import ignore_progress, no_fence
from codehub.ports.homes import HomeState
from testing.contracts.homes import key
from testing.homes import LocalDirWorld, local_world
from testing.killpoints import ARCHIVE_POINTS, PROVISION_POINTS, REMOVE_POINTS, RESTORE_POINTS, killed
from testing.trees import Fingerprint, differences, fingerprint, make_rich_tree

OWNER = (1_500_000_001, 1_500_000_001) if os.geteuid() == 0 else None
ARCHIVE_KEY = f"{key().workspace_id}/op-1/home.tar.zst"


@pytest.fixture
def local(tmp_path: Path) -> LocalDirWorld:
    return local_world(tmp_path, Store((tmp_path / "archives").as_uri()))


def job(local: LocalDirWorld, do: str, point: str, incarnation: str, nth: int = 1) -> dict[str, str]:
    return {
        "do": do, "point": point, "nth": str(nth), "store": local.store.url, "root": str(local.root), "op": "op-1",
        "workspace": key().workspace_id, "store_key": key().store_key, "incarnation": incarnation, "key": ARCHIVE_KEY,
    }  # fmt: skip


async def filled(local: LocalDirWorld) -> Fingerprint:
    await local.homes.provision(key(), "inc-1", no_fence)
    make_rich_tree(local.files(key()), owner=OWNER)
    return fingerprint(local.files(key()))


async def archive_to_the_end(local: LocalDirWorld) -> None:
    """As a coordinator that comes back: from what it finds."""
    status = await local.homes.status(key())
    if status.state is not HomeState.ABSENT:
        assert status.ctx == HomeCtx("inc-1")
        await local.homes.archive(key(), HomeCtx("inc-1"), "op-1", ignore_progress, no_fence)
    else:
        assert await local.archives.committed([ARCHIVE_KEY]) == {ARCHIVE_KEY: True}, "or the home would be lost"
    await local.homes.deprovision(key(), HomeCtx("inc-1"), no_fence)


def leftovers(local: LocalDirWorld) -> list[str]:
    hidden = [str(p) for p in local.root.rglob(".*-*") if p.name.startswith((".staging", ".trash", ".damaged"))]
    halves = [str(p) for p in (local.root.parent / "archives").rglob("*#*")]
    return hidden + halves


@pytest.mark.parametrize("point", [*ARCHIVE_POINTS, *REMOVE_POINTS])
async def test_killed_while_archiving_the_home_comes_back_whole(local: LocalDirWorld, point: str) -> None:
    before = await filled(local)
    assert await killed(job(local, "archive", point, "inc-1"))
    if (await local.homes.status(key())).state is HomeState.WHOLE:
        assert differences(before, fingerprint(local.files(key()))) == []
    await archive_to_the_end(local)
    assert [place.archive_key async for place in local.archives.list_places()] == [ARCHIVE_KEY]
    assert leftovers(local) == []
    await local.homes.restore(key(), ARCHIVE_KEY, "inc-2", ignore_progress, no_fence)
    assert differences(before, fingerprint(local.files(key()))) == []


@pytest.mark.parametrize("point", RESTORE_POINTS)
async def test_killed_while_restoring_the_home_comes_back_whole(local: LocalDirWorld, point: str) -> None:
    before = await filled(local)
    await archive_to_the_end(local)
    assert await killed(job(local, "restore", point, "inc-2"))
    status = await local.homes.status(key())
    assert status.state is (HomeState.WHOLE if point == "restore:swapped" else HomeState.ABSENT)
    ctx = await local.homes.restore(key(), ARCHIVE_KEY, "inc-3", ignore_progress, no_fence)
    assert ctx == HomeCtx("inc-2" if point == "restore:swapped" else "inc-3", ARCHIVE_KEY)
    assert differences(before, fingerprint(local.files(key()))) == []
    assert leftovers(local) == []


@pytest.mark.parametrize("point", PROVISION_POINTS)
async def test_killed_while_provisioning_the_home_is_whole_or_not_there(local: LocalDirWorld, point: str) -> None:
    assert await killed(job(local, "provision", point, "inc-1"))
    status = await local.homes.status(key())
    assert status.state is (HomeState.WHOLE if point == "provision:swapped" else HomeState.ABSENT)
    ctx = await local.homes.provision(key(), "inc-2", no_fence)
    assert ctx.incarnation == ("inc-1" if point == "provision:swapped" else "inc-2")
    assert leftovers(local) == []


async def test_killed_at_random_bytes_over_and_over_nothing_is_lost(local: LocalDirWorld) -> None:
    rng = random.Random(11)
    before = await filled(local)
    for _ in range(2):
        await killed(job(local, "archive", "archive:bytes", "inc-1", rng.randrange(1, 5)))
    await archive_to_the_end(local)
    for _ in range(2):
        await killed(job(local, "restore", "restore:bytes", "inc-2", rng.randrange(1, 5)))
    await local.homes.restore(key(), ARCHIVE_KEY, "inc-3", ignore_progress, no_fence)
    assert differences(before, fingerprint(local.files(key()))) == []
    await local.homes.sweep(key(), no_fence)
    assert leftovers(local) == []
