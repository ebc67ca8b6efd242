"""A leader that was frozen while it removed a docker volume, and comes back when the next one's stands in its place.

Frozen is meant: its event loop stands still at the point, right after its last look at the fence, while the successor
does its work on a connection of its own.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import pytest

from codehub.adapters.docker.engine import Engine
from codehub.adapters.homes.docker_volume import DockerVolumeHomes, volume_name
from codehub.adapters.objectstore.store import Store
from codehub.adapters.objectstore.transfer import Checkpoint, nowhere
from codehub.domain.errors import FenceLost
from codehub.domain.model import HomeCtx
from codehub.ports.fence import ignore_progress, no_fence
from codehub.ports.homes import HomeState, HomeStatus
from testing.codehub.contracts.homes import key
from testing.codehub.docker import DockerEngine

pytestmark = [pytest.mark.needs("docker", "root"), pytest.mark.xdist_group("docker")]
T = TypeVar("T")
Work = Callable[[DockerVolumeHomes], Awaitable[T]]


class Crash(Exception):
    """A leader's end."""


@dataclass
class Leaders:
    docker: DockerEngine
    store: Store
    installation_id: str

    async def as_one(self, work: Work[T], at: Checkpoint = nowhere) -> T:
        """One leader's work, with everything of its own."""
        engine = Engine(self.docker.host, self.installation_id)
        try:
            return await work(DockerVolumeHomes(engine, self.store, at=at))
        finally:
            await engine.close()

    async def frozen(self, point: str, work: Work[object], successor: Work[None]) -> None:
        """The work of a leader that stands still at the point until its successor is done."""
        passed: list[str] = []

        def at(now: str) -> None:
            if now == point and not passed:
                passed.append(now)
                with ThreadPoolExecutor(1) as pool:
                    pool.submit(lambda: asyncio.run(self.as_one(successor))).result()

        try:
            await self.as_one(work, at)
        finally:
            assert passed == [point]

    def notes(self) -> Path:
        return self.docker.base / "data/volumes" / volume_name(key().workspace_id) / "_data/notes"


@pytest.fixture
async def leaders(docker_engine: DockerEngine, tmp_path: Path) -> AsyncIterator[Leaders]:
    try:
        yield Leaders(docker_engine, Store((tmp_path / "archives").as_uri()), f"test-{uuid.uuid4()}")
    finally:
        await asyncio.to_thread(docker_engine.remove_everything)


@pytest.mark.parametrize("point", ["deprovision:fenced", "deprovision:renamed", "deprovision:half-removed"])
async def test_a_late_removal_takes_nothing_of_the_next_incarnation(leaders: Leaders, point: str) -> None:
    ctx = await leaders.as_one(lambda homes: homes.provision(key(), "inc-1", no_fence))
    receipt = await leaders.as_one(lambda homes: homes.archive(key(), ctx, "op-1", ignore_progress, no_fence))

    async def next_leader(homes: DockerVolumeHomes) -> None:
        await homes.deprovision(key(), ctx, no_fence)
        await homes.restore(key(), receipt.archive_key, "inc-2", ignore_progress, no_fence)
        leaders.notes().write_text("written since")

    with pytest.raises(FenceLost):
        await leaders.frozen(point, lambda homes: homes.deprovision(key(), ctx, no_fence), next_leader)
    await expect_second(leaders, receipt.archive_key)


@pytest.mark.parametrize("what", ["provision", "sweep", "purge"])
async def test_a_late_clearing_away_of_a_half_takes_nothing_of_the_next_incarnation(
    leaders: Leaders, what: str
) -> None:
    receipt = await leaders.as_one(lambda homes: homes.archive_empty(key(), "op-1", no_fence))

    def dies(point: str) -> None:
        if point == "provision:staged":
            raise Crash

    with pytest.raises(Crash):
        await leaders.as_one(lambda homes: homes.provision(key(), "inc-1", no_fence), dies)

    async def next_leader(homes: DockerVolumeHomes) -> None:
        await homes.restore(key(), receipt.archive_key, "inc-2", ignore_progress, no_fence)
        leaders.notes().write_text("written since")

    async def late(homes: DockerVolumeHomes) -> None:
        if what == "provision":
            await homes.provision(key(), "inc-3", no_fence)
        else:
            await (homes.sweep if what == "sweep" else homes.purge)(key(), no_fence)

    with pytest.raises(FenceLost):
        await leaders.frozen("remove:fenced", late, next_leader)
    await expect_second(leaders, receipt.archive_key)


async def expect_second(leaders: Leaders, archive_key: str) -> None:
    status = await leaders.as_one(lambda homes: homes.status(key()))
    assert status == HomeStatus(HomeState.COMPLETE, HomeCtx("inc-2", archive_key))
    assert leaders.notes().read_text() == "written since"
