"""A disk that hangs, as a network file system does: calls on its homes wait, and nothing else does."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from pathlib import Path

import pytest

from codehub.adapters.homes import local_dir
from codehub.adapters.homes.layout import inspect_home
from codehub.adapters.homes.local_dir import LocalDirHomes
from codehub.adapters.objectstore.store import Store
from codehub.ports.homes import HomeKey, HomeState
from testing.codehub.contracts.homes import key


@pytest.fixture
def homes(tmp_path: Path) -> LocalDirHomes:
    (tmp_path / "homes").mkdir()
    return LocalDirHomes(tmp_path / "homes", Store((tmp_path / "archives").as_uri()))


async def test_homes_that_hang_occupy_no_thread_of_others(
    homes: LocalDirHomes, monkeypatch: pytest.MonkeyPatch
) -> None:
    hangs, resumed = threading.Event(), threading.Event()

    def inspect_slowly(place: Path) -> object:
        hangs.set()
        assert resumed.wait(60)
        return inspect_home(place)

    monkeypatch.setattr(local_dir, "inspect_home", inspect_slowly)
    home: HomeKey = key()
    waiting = [asyncio.create_task(homes.status(home)) for _ in range(100)]
    try:
        await asyncio.to_thread(hangs.wait, 60)
        async with asyncio.timeout(60):
            assert await asyncio.gather(*(asyncio.to_thread(int, "1") for _ in range(10))) == [1] * 10
        for task in waiting[:90]:
            task.cancel()  # as a resync does that does not wait any longer
    finally:
        resumed.set()
    for task in waiting[:90]:
        with contextlib.suppress(asyncio.CancelledError):
            await task
    async with asyncio.timeout(60):
        assert {found.state for found in await asyncio.gather(*waiting[90:])} == {HomeState.ABSENT}
