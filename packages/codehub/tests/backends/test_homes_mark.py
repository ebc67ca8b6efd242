"""A homes' disk that is not mounted today: its homes are Unknown, never lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from codehub.adapters.backend_set import BackendOptions, BackendSet, load_catalog, open_backends
from codehub.adapters.homes.local_dir import LocalDirHomes
from codehub.adapters.homes.mark import MARK, WITNESS, HomesMark
from codehub.adapters.objectstore.store import Store
from codehub.cli.checks import Health, check_homes
from codehub.cli.effective_settings import effective_settings
from codehub.domain.errors import BackendDown
from codehub.ports.fence import ignore_progress, no_fence
from codehub.ports.homes import HomeState
from testing.codehub.contracts.homes import key


async def opened(base: Path) -> BackendSet:
    options = BackendOptions(base / "data", base / "homes", (base / "archives").as_uri(), "test", runtime="process")
    (base / "data").mkdir(exist_ok=True)
    return await open_backends(options, load_catalog(None, "code-server", ()))


async def test_an_empty_mount_point_is_a_backend_that_is_down_and_nothing_is_made_in_it(tmp_path: Path) -> None:
    first = await opened(tmp_path)
    homes = first.homes["local-dir"]
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
    await first.close()
    # A CodeHub that starts without the disk starts, and knows as much.
    second = await opened(tmp_path)
    with pytest.raises(BackendDown):
        await second.homes["local-dir"].status(key())
    assert list((tmp_path / "homes").iterdir()) == []
    doctor = effective_settings(
        {"CODEHUB_DATA_DIR": str(tmp_path / "data"), "CODEHUB_HOMES_DIR": str(tmp_path / "homes")}
    )
    assert [finding.health for finding in await check_homes(doctor)] == [Health.BAD]
    (tmp_path / "homes").rmdir()
    (tmp_path / "disk").rename(tmp_path / "homes")
    assert (await second.homes["local-dir"].status(key())).state is HomeState.WHOLE
    assert await check_homes(doctor) == []
    await second.close()


async def test_homes_of_before_are_marked_and_another_directory_is_a_new_one(tmp_path: Path) -> None:
    """An installation that is older than the mark goes on; one that was moved on purpose does too."""
    store = Store((tmp_path / "archives").as_uri())
    await LocalDirHomes(tmp_path / "homes", store).provision(key(), "inc-1", no_fence)
    mark = HomesMark(tmp_path / "homes", tmp_path / WITNESS)
    homes = LocalDirHomes(tmp_path / "homes", store, mark=mark)
    await homes.ping()
    assert (tmp_path / "homes" / MARK).is_file()
    assert list(await homes.list_all()) == [key().workspace_id]
    elsewhere = HomesMark(tmp_path / "elsewhere", tmp_path / WITNESS)
    await LocalDirHomes(tmp_path / "elsewhere", store, mark=elsewhere).ping()
    assert (tmp_path / "elsewhere" / MARK).is_file()
