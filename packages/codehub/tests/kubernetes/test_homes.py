"""Homes as claims of a real node: the contract, and files that only a writable mount can read."""

from __future__ import annotations

from pathlib import Path

import pytest

from codehub.adapters.kubernetes.cluster import Cluster
from codehub.adapters.objectstore.store import Store
from codehub.domain.errors import ArchiveCorrupted
from codehub.ports.fence import ignore_progress, no_fence
from testing.codehub.contracts.homes import HomesContract, key
from testing.codehub.kubernetes import Node, PvcWorld, pvc_world

pytestmark = [pytest.mark.needs("kubernetes", "root"), pytest.mark.timeout(900)]


@pytest.fixture
async def claims(node: Node, cluster: Cluster, tmp_path: Path) -> PvcWorld:
    return pvc_world(cluster, Store((tmp_path / "archives").as_uri()))


class TestPvc(HomesContract):
    @pytest.fixture
    def world(self, claims: PvcWorld) -> PvcWorld:
        return claims


async def test_a_damaged_archive_leaves_no_claim(claims: PvcWorld) -> None:
    receipt = await claims.homes.archive_empty(key(), "op-1", no_fence)
    claims.store.put(receipt.archive_key, b"not what it was")
    with pytest.raises(ArchiveCorrupted):
        await claims.homes.restore(key(), receipt.archive_key, "inc-1", ignore_progress, no_fence)
    assert await claims.homes.list_all() == {}


async def test_a_file_that_is_closed_to_its_own_user_is_archived_too(claims: PvcWorld) -> None:
    ctx = await claims.homes.provision(key(), "inc-1", no_fence)
    await claims.write(key(), {"closed": b"for nobody", "open": b"for all"})
    base = await claims.files(key())
    assert base is not None
    (base / "closed").chmod(0)
    receipt = await claims.homes.archive(key(), ctx, "op-1", ignore_progress, no_fence)
    await claims.homes.deprovision(key(), ctx, no_fence)
    await claims.homes.restore(key(), receipt.archive_key, "inc-2", ignore_progress, no_fence)
    again = await claims.files(key())
    assert again is not None
    assert (again / "closed").stat().st_mode & 0o777 == 0
    assert await claims.read(key()) == {"closed": b"for nobody", "open": b"for all"}
