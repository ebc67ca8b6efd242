"""A whole coordinator whose archive store, or whose home, is in trouble: it says so, loses nothing, and gets there."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping

import pytest
import pytest_asyncio

from codehub.adapters.filesystem.remove import remove_tree
from codehub.adapters.objectstore.store import Store
from codehub.adapters.postgres.pool import Database
from codehub.domain.model import DesiredState, ErrorReason, Phase
from testing.codehub.faulty_s3 import FaultyS3, faulty_proxy
from testing.codehub.installation import Installation, installation, until
from testing.codehub.objectstore import S3Server
from testing.codehub.trees import Fingerprint, differences, fingerprint, make_rich_tree

pytestmark = [pytest.mark.xdist_group("s3"), pytest.mark.timeout(900)]
OWNER = (1_500_000_001, 1_500_000_001) if os.geteuid() == 0 else None


@pytest_asyncio.fixture
async def faulty(s3_server: S3Server) -> AsyncIterator[FaultyS3]:
    async with faulty_proxy(s3_server) as proxy:
        yield proxy


def behind(faulty: FaultyS3, store: Store, server: S3Server) -> Mapping[str, str]:
    return server.environment(store) | {"AWS_ENDPOINT_URL": faulty.endpoint}


async def rich(here: Installation) -> Fingerprint:
    await here.reaches(Phase.STANDBY)
    make_rich_tree(here.files, owner=OWNER)
    return fingerprint(here.files)


async def through_trouble(here: Installation, faulty: FaultyS3, mode: str, desired: DesiredState) -> None:
    """Asked for while the store does that, which it goes on doing until the coordinator has met it."""
    faulty.turn(mode)
    before = faulty.failed
    await here.ask(desired)

    async def met() -> bool:
        return faulty.failed > before

    await until(met, f"{desired} meets {mode}")
    faulty.turn("")
    row = await here.reaches(Phase(desired.value))
    assert row.error_reason is None


@pytest.mark.parametrize("mode", ["500", "reset-up:1000000"])
async def test_what_a_store_in_trouble_costs_is_time(
    database: Database, redis_url: str, s3_server: S3Server, faulty: FaultyS3, mode: str
) -> None:
    store = s3_server.fresh()
    async with installation(database, redis_url, behind(faulty, store, s3_server)) as here:
        await here.create(DesiredState.STANDBY)
        here.coordinator()
        before = await rich(here)
        await through_trouble(here, faulty, mode, DesiredState.ARCHIVED)
        assert not here.files.exists()
        assert len(list(store.paths(here.row.id))) == 2, "one archive and its meta"
        back = mode.replace("reset-up", "reset-down")
        await through_trouble(here, faulty, back, DesiredState.STANDBY)
        assert differences(before, fingerprint(here.files)) == []
    store.close()


async def test_a_damaged_archive_is_said_to_be_and_restored_once_it_is_right_again(
    database: Database, redis_url: str, s3_server: S3Server
) -> None:
    store = s3_server.fresh()
    async with installation(database, redis_url, s3_server.environment(store)) as here:
        await here.create(DesiredState.STANDBY)
        here.coordinator()
        before = await rich(here)
        await here.ask(DesiredState.ARCHIVED)
        archive_key = (await here.reaches(Phase.ARCHIVED)).archive_key
        assert archive_key is not None
        right = store.get(archive_key)
        assert right is not None
        store.put(archive_key, right[:1000] + bytes([right[1000] ^ 1]) + right[1001:])
        await here.ask(DesiredState.STANDBY)
        assert (await here.reaches(Phase.ERROR)).error_reason is ErrorReason.ARCHIVE_CORRUPTED
        assert not here.files.exists()
        store.put(archive_key, right)
        await here.change("error_reason = NULL, error_count = 0, retry_at = NULL")  # as an admin's :recover does
        await here.reaches(Phase.STANDBY)
        assert differences(before, fingerprint(here.files)) == []

        # And now the volume goes, behind our back. An older archive does not make that good: someone has to choose it.
        (here.files / "since").write_text("never archived")
        remove_tree(here.files.parent)
        assert (await here.reaches(Phase.ERROR)).error_reason is ErrorReason.DATA_LOST
        assert store.get(archive_key) == right
    store.close()


async def test_a_home_that_was_removed_and_never_archived_is_said_to_be_lost(
    database: Database, redis_url: str
) -> None:
    async with installation(database, redis_url) as here:
        await here.create(DesiredState.STANDBY)
        here.coordinator()
        await rich(here)
        remove_tree(here.files.parent)
        assert (await here.reaches(Phase.ERROR)).error_reason is ErrorReason.DATA_LOST
