"""A directory of homes that takes no new ones, as in a coordinator's Pod: it matters only while older homes are in it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from codehub.adapters.homes.local_dir import LocalDirHomes
from codehub.adapters.homes.mark import HomesMark
from codehub.adapters.objectstore.archives import ObjectArchives
from codehub.adapters.objectstore.store import Store
from codehub.control.stores import StoreCheck
from codehub.domain.errors import BackendDown
from codehub.domain.model import HomeCtx
from codehub.domain.stores import StoreRecord
from testing.codehub.memory.database import MemoryDatabase
from testing.codehub.workspaces import workspace

_LEASE: Any = SimpleNamespace(epoch=1, fence=lambda: None)


@pytest.fixture
def database(tmp_path: Path) -> MemoryDatabase:
    made = MemoryDatabase()
    made.epoch = 1
    # At the same path in another coordinator's Pod.
    made.stores["homes"] = StoreRecord("another", str(tmp_path / "homes"))
    return made


async def checked(database: MemoryDatabase, place: Path, *, takes_new: bool) -> HomesMark:
    store = Store((place / "archives").as_uri())
    mark = HomesMark(place / "homes", takes_new=takes_new)
    homes = LocalDirHomes(mark.root, store, mark=mark)
    check = StoreCheck([mark], database, homes, ObjectArchives(store), "here", lambda: "new")
    await check.before_campaign()
    await check.in_term(_LEASE)
    return mark


async def test_without_homes_in_it_another_directory_is_neither_missed_nor_claimed(
    database: MemoryDatabase, tmp_path: Path
) -> None:
    mark = await checked(database, tmp_path, takes_new=False)
    mark.check()
    assert await mark.read_id() is None
    assert database.stores["homes"].id == "another"


@pytest.mark.parametrize(("takes_new", "has_home"), [(False, True), (True, False)])
async def test_a_directory_that_holds_homes_or_will_is_down_while_it_is_another(
    database: MemoryDatabase, tmp_path: Path, takes_new: bool, has_home: bool
) -> None:
    row = workspace()
    database.rows[row.id] = replace(row, home_ctx=HomeCtx("inc-1") if has_home else None)
    mark = await checked(database, tmp_path, takes_new=takes_new)
    with pytest.raises(BackendDown):
        mark.check()
