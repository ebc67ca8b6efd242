"""Removals that come late, after the next leader has put something else there: it is put back, and never removed.

`integration/test_frozen_leader.py` does the same with real coordinators that are frozen.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from codehub.adapters.homes.local_dir import LocalDirHomes
from codehub.adapters.objectstore.store import Store
from codehub.adapters.process.layout import RunLayout
from codehub.domain.errors import FenceLost
from codehub.domain.model import HomeCtx
from codehub.ports.fence import no_fence
from codehub.ports.homes import HomeState, HomeStatus
from testing.codehub.contracts.homes import key


@pytest.mark.parametrize("what", ["provision", "sweep", "deprovision"])
async def test_a_volume_that_was_taken_by_mistake_is_put_back(tmp_path: Path, what: str) -> None:
    homes = LocalDirHomes(tmp_path / "homes", Store((tmp_path / "archives").as_uri()))
    await homes.provision(key(), "inc-2", no_fence)
    home = tmp_path / "homes" / key().store_key
    (home / "files/notes").write_text("kept")
    late = home.parent / ".trash-inc-1"
    home.rename(late)  # the late one took it, and came to its own end right there
    if what == "provision":
        assert await homes.provision(key(), "inc-3", no_fence) == HomeCtx("inc-2")
    elif what == "sweep":
        await homes.sweep(key(), no_fence)
    else:
        with pytest.raises(FenceLost):
            await homes.deprovision(key(), HomeCtx("inc-1"), no_fence)
    assert await homes.status(key()) == HomeStatus(HomeState.COMPLETE, HomeCtx("inc-2"))
    assert (home / "files/notes").read_text() == "kept"
    assert not late.exists()


async def test_a_volume_that_came_between_fence_and_removal_stays(tmp_path: Path) -> None:
    home = tmp_path / "homes" / key().store_key

    def at(point: str) -> None:
        if point == "deprovision:fenced":
            (home / "ctx.json").write_text('{"incarnation": "inc-2", "restore_marker": null}')

    homes = LocalDirHomes(tmp_path / "homes", Store((tmp_path / "archives").as_uri()), at=at)
    ctx = await homes.provision(key(), "inc-1", no_fence)
    with pytest.raises(FenceLost):
        await homes.deprovision(key(), ctx, no_fence)
    assert await homes.status(key()) == HomeStatus(HomeState.COMPLETE, HomeCtx("inc-2"))


def test_the_place_of_the_next_start_stays(tmp_path: Path) -> None:
    places = RunLayout(tmp_path / "run")
    record = {
        "workspace_id": "w", "identity": "second", "spec_digest": "", "boot": "", "pid": 1, "start": 1, "uid": None,
        "host": "", "port": 0, "socket_path": "", "secret": None,
    }  # fmt: skip
    (places.make("w") / "record.json").write_text(json.dumps(record))
    sockets = places.make_socket_dir("second", None)
    with pytest.raises(FenceLost, match="another start"):
        places.remove("w", "first")
    assert json.loads((places.run_dir("w") / "record.json").read_text()) == record
    assert sockets.is_dir()

    taken = places.root / ".gone-first"
    places.run_dir("w").rename(taken)  # in the moment before it is put back, another workspace starts
    places.make("x").rmdir()
    taken.rename(places.run_dir("w"))
    assert json.loads((places.run_dir("w") / "record.json").read_text()) == record

    places.remove("w", "second")
    assert not places.run_dir("w").exists()
    assert not sockets.exists()
    assert places.workspaces() == []
