"""Kill -9 at every named point with the archives in a real S3 store; and what the GC leaves there in the end."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from codehub.adapters.memory.database import Generation, MemoryDatabase
from codehub.adapters.objectstore.store import Store
from codehub.control.gc_runner import GcRunner
from codehub.control.metrics import Metrics
from codehub.control.supervise import Pulse
from codehub.control.term import GcSettings
from codehub.domain.gc import archive_key_of
from codehub.domain.model import HomeCtx
from codehub.ports.fence import ignore_progress, no_fence
from codehub.ports.homes import ArchiveReceipt, HomeState
from testing.contracts.homes import key
from testing.homes import LocalDirWorld, local_world
from testing.killpoints import ARCHIVE_POINTS, REMOVE_POINTS, RESTORE_POINTS, killed
from testing.objectstore import S3Server
from testing.trees import differences, fingerprint, make_rich_tree
from testing.workspaces import NOW, workspace

pytestmark = [pytest.mark.xdist_group("s3"), pytest.mark.timeout(600)]
OWNER = (1_500_000_001, 1_500_000_001) if os.geteuid() == 0 else None


@pytest.fixture
def store(s3_server: S3Server) -> Iterator[Store]:
    store = s3_server.fresh()
    yield store
    store.close()


@dataclass
class _Term:
    """A leader that stays one, and its clock."""

    epoch: int = 0
    holder_id: str = "test"
    time: datetime = NOW

    def fence(self) -> None:
        """Never lost here."""

    async def hold(self) -> None:
        raise AssertionError("nobody holds this one")

    def now(self) -> datetime:
        return self.time

    def monotonic(self) -> float:
        return self.time.timestamp()


async def test_killed_at_every_point_nothing_is_lost_or_doubled_and_the_gc_keeps_two_generations(
    tmp_path: Path, store: Store, s3_server: S3Server
) -> None:
    local = local_world(tmp_path, store)
    ctx = await local.homes.provision(key(), "inc-0", no_fence)
    make_rich_tree(local.files(key()), owner=OWNER)
    before = fingerprint(local.files(key()))
    rng = random.Random(5)
    ops: list[str] = []
    points = [*ARCHIVE_POINTS, *REMOVE_POINTS]
    for number, point in enumerate(points):
        op = f"op-{number}"
        archive = archive_key_of(key().workspace_id, op)
        nth = rng.randrange(1, 4) if point == "archive:bytes" else 1
        job = {
            "point": point, "nth": str(nth), "store": store.url, "root": str(local.root), "op": op,
            "store_options": s3_server.options_json(), "workspace": key().workspace_id, "store_key": key().store_key,
        }  # fmt: skip
        assert await killed(job | {"do": "archive", "incarnation": ctx.incarnation}), point
        if (await local.homes.status(key())).state is HomeState.WHOLE:
            assert differences(before, fingerprint(local.files(key()))) == [], point
            await local.homes.archive(key(), ctx, op, ignore_progress, no_fence)
        assert await local.archives.committed([archive]) == {archive: True}, point
        await local.homes.deprovision(key(), ctx, no_fence)
        ops.append(op)
        # And on the way back, at another point each time.
        back = RESTORE_POINTS[number % len(RESTORE_POINTS)]
        again = job | {"do": "restore", "point": back, "incarnation": f"inc-{number}k", "key": archive}
        assert await killed(again), back
        ctx = await local.homes.restore(key(), archive, f"inc-{number}", ignore_progress, no_fence)
        assert ctx.restore_marker == archive
        assert differences(before, fingerprint(local.files(key()))) == [], (point, back)
    made = sorted([place.op_id async for place in local.archives.list_places()])
    assert made == sorted(ops), "one archive for each operation, and no upload left half-done"
    await _collect(local, ctx, ops)
    left = sorted([place.op_id async for place in local.archives.list_places()])
    assert left == sorted(ops[-2:])


async def _collect(local: LocalDirWorld, ctx: HomeCtx, ops: list[str]) -> None:
    """The leader's GC, twice with its grace in between, for a workspace that made these archives in this order."""
    term = _Term()
    database = MemoryDatabase()
    row = workspace(key().workspace_id)
    database.put(replace(row, archive_key=ctx.restore_marker, archive_op_id=ops[-1], home_ctx=ctx))
    for number, op in enumerate(ops):
        receipt = ArchiveReceipt(archive_key_of(row.id, op), op, 1, "0" * 64)
        database.generations.setdefault(row.id, {})[op] = Generation(receipt, NOW + timedelta(seconds=number))
    pulse = Pulse("gc_runner", term, Metrics(), term.fence)
    runner = GcRunner(database, local.archives, term, term, GcSettings(keep=2), pulse)
    await runner.tick()
    term.time += timedelta(hours=3)
    await runner.tick()
