"""Transfers of homes take turns by owner, and those that wait delay nobody and do not time out."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import ExitStack, suppress
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codehub.control.deps import ControllerSettings
from codehub.control.transfer_turns import NotYourTurn, TransferTurns
from codehub.domain.model import DesiredState, HomeCtx, Operation, Phase
from codehub.ports.fence import Fence, Report
from codehub.ports.homes import ARCHIVES_AT_ONCE, RESTORES_AT_ONCE, ArchiveReceipt, HomeKey
from testing.codehub.control_world import World, run
from testing.codehub.memory.world import MemoryArchives, MemoryHomes
from testing.codehub.workspaces import WORKSPACE_ID

TRANSFER_S = 500.0
CROWD = [f"01980000-0000-7000-8000-{number:012}" for number in range(100, 140)]


class Slow(MemoryHomes):
    """Each transfer takes long, without progress."""

    def __init__(self, archives: MemoryArchives) -> None:
        super().__init__(archives)
        self.running: Counter[str] = Counter()
        self.most: Counter[str] = Counter()
        self.order: list[str] = []

    async def _transfer(self, direction: str, home: HomeKey) -> None:
        self.running[direction] += 1
        self.most[direction] = max(self.most[direction], self.running[direction])
        self.order.append(home.workspace_id)
        try:
            await asyncio.sleep(TRANSFER_S)
        finally:
            self.running[direction] -= 1

    async def archive(self, home: HomeKey, ctx: HomeCtx, op_id: str, report: Report, fence: Fence) -> ArchiveReceipt:
        await self._transfer("archive", home)
        return await super().archive(home, ctx, op_id, report, fence)

    async def restore(
        self,
        home: HomeKey,
        archive_key: str,
        incarnation: str,
        report: Report,
        fence: Fence,
        sha256: str | None = None,
    ) -> HomeCtx:
        await self._transfer("restore", home)
        return await super().restore(home, archive_key, incarnation, report, fence, sha256)


class SlowToRemove(MemoryHomes):
    """A home of millions of files."""

    def __init__(self, archives: MemoryArchives) -> None:
        super().__init__(archives)
        self.running = self.most = 0

    async def deprovision(self, home: HomeKey, ctx: HomeCtx, fence: Fence) -> None:
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            await asyncio.sleep(TRANSFER_S)
        finally:
            self.running -= 1
        await super().deprovision(home, ctx, fence)


def slow_world() -> tuple[World, Slow]:
    world = World()
    homes = Slow(world.archives)
    world.homes = homes
    return world, homes


def phases(world: World) -> Counter[Phase]:
    return Counter(world.database.rows[id_].phase for id_ in CROWD)


def test_many_long_transfers_delay_neither_a_start_nor_another_users_archive_and_none_times_out() -> None:
    world, homes = slow_world()

    async def main() -> None:
        for id_ in CROWD:
            world.put(id_)
        async with world.leading():
            for id_ in CROWD:
                await world.until(lambda row: row.phase is Phase.RUNNING, id_=id_)
            for id_ in CROWD:
                world.database.put(replace(world.database.rows[id_], desired_state=DesiredState.ARCHIVED))
            await world.until(lambda row: row.operation is Operation.ARCHIVING, id_=CROWD[-1])
            await asyncio.sleep(10)
            # Everything is waiting for archives. Somebody creates a workspace, and archives it.
            begun = world.clock.monotonic()
            world.put(WORKSPACE_ID, owner_user_id="somebody-else")
            await world.until(lambda row: row.phase is Phase.RUNNING, id_=WORKSPACE_ID)
            assert world.clock.monotonic() - begun < 30
            row = world.database.rows[WORKSPACE_ID]
            world.database.put(replace(row, desired_state=DesiredState.ARCHIVED))
            await world.until(lambda row: row.phase is Phase.ARCHIVED, 3 * TRANSFER_S, id_=WORKSPACE_ID)
            # It is restored while the others are still being archived.
            row = world.database.rows[WORKSPACE_ID]
            world.database.put(replace(row, desired_state=DesiredState.RUNNING))
            await world.until(lambda row: row.phase is Phase.RUNNING, 2 * TRANSFER_S, id_=WORKSPACE_ID)
            assert phases(world)[Phase.ARCHIVED] < len(CROWD)
            for id_ in CROWD:
                await world.until(lambda row: row.phase is Phase.ARCHIVED, len(CROWD) * TRANSFER_S, id_=id_)
            assert homes.most["archive"] == ARCHIVES_AT_ONCE

    assert TRANSFER_S * len(CROWD) / ARCHIVES_AT_ONCE > 5 * ControllerSettings().operation_timeout_s
    run(world, main)


def test_many_long_removals_do_not_delay_a_start() -> None:
    world = World()
    world.homes = homes = SlowToRemove(world.archives)

    async def main() -> None:
        for id_ in CROWD:
            world.put(id_)
        async with world.leading():
            for id_ in CROWD:
                await world.until(lambda row: row.phase is Phase.RUNNING, id_=id_)
            for id_ in CROWD:
                world.database.put(replace(world.database.rows[id_], desired_state=DesiredState.ARCHIVED))
            await world.until(lambda row: row.operation is Operation.ARCHIVING, id_=CROWD[-1])
            await asyncio.sleep(10)
            begun = world.clock.monotonic()
            world.put(WORKSPACE_ID, owner_user_id="somebody-else")
            await world.until(lambda row: row.phase is Phase.RUNNING, id_=WORKSPACE_ID)
            assert world.clock.monotonic() - begun < 30
            assert homes.most == ARCHIVES_AT_ONCE

    run(world, main)


def test_many_restores_delay_no_start_and_none_times_out() -> None:
    world, homes = slow_world()

    async def main() -> None:
        for id_ in CROWD:
            world.put(id_, desired_state=DesiredState.ARCHIVED)
        async with world.leading():
            for id_ in CROWD:
                await world.until(lambda row: row.phase is Phase.ARCHIVED, id_=id_)
            for id_ in CROWD:
                world.database.put(replace(world.database.rows[id_], desired_state=DesiredState.RUNNING))
            await world.until(lambda row: row.operation is Operation.RESTORING, id_=CROWD[-1])
            begun = world.clock.monotonic()
            world.put(WORKSPACE_ID, owner_user_id="somebody-else")
            await world.until(lambda row: row.phase is Phase.RUNNING, id_=WORKSPACE_ID)
            assert world.clock.monotonic() - begun < 30
            for id_ in CROWD:
                await world.until(lambda row: row.phase is Phase.RUNNING, len(CROWD) * TRANSFER_S, id_=id_)
            assert homes.most["restore"] == RESTORES_AT_ONCE

    run(world, main)


def test_one_that_is_cancelled_while_it_waits_gives_up_its_place() -> None:
    world, homes = slow_world()
    waiting = CROWD[:6]

    async def main() -> None:
        for id_ in waiting:
            world.put(id_)
        async with world.leading():
            for id_ in waiting:
                await world.until(lambda row: row.phase is Phase.RUNNING, id_=id_)
            for id_ in waiting:
                world.database.put(replace(world.database.rows[id_], desired_state=DesiredState.ARCHIVED))
            for id_ in waiting:
                await world.until(lambda row: row.operation is Operation.ARCHIVING, id_=id_)
            await asyncio.sleep(10)
            cancelled, last = (id_ for id_ in waiting if id_ not in homes.order)
            row = world.database.rows[cancelled]
            world.database.put(
                replace(row, desired_state=DesiredState.RUNNING, cancel_op_started_at=row.op_started_at)
            )
            await world.until(lambda row: row.phase is Phase.RUNNING, 60, id_=cancelled)
            await world.until(lambda row: row.phase is Phase.ARCHIVED, 3 * TRANSFER_S, id_=last)
            assert cancelled not in homes.order

    run(world, main)


KEYS = st.sampled_from("abcdefgh")


@given(
    st.lists(st.tuples(st.sampled_from(["ask", "end", "settle"]), KEYS), max_size=60),
    st.integers(1, 3),
    st.dictionaries(KEYS, st.sampled_from(["ada", "bob", "eve"]), min_size=8),
)
def test_slots_are_never_exceeded_and_somebody_is_woken_while_one_is_free(
    steps: list[tuple[str, str]], most: int, owners: dict[str, str]
) -> None:
    woken: list[str] = []
    turns = TransferTurns(most, woken.append)
    running: dict[str, ExitStack] = {}
    waiting: set[str] = set()
    for what, key in steps:
        woken.clear()
        if what == "ask" and key not in running:
            stack = ExitStack()
            try:
                stack.enter_context(turns.turn(key, owners[key]))
            except NotYourTurn:
                waiting.add(key)
                turns.settle(key)
                continue
            waiting.discard(key)
            running[key] = stack
        elif what == "end" and key in running:
            running.pop(key).close()
            turns.settle(key)
        elif what == "settle" and key not in running:
            was_waiting = key in waiting
            turns.settle(key)
            waiting.discard(key)
            if not was_waiting:
                continue
        else:
            continue
        assert len(running) <= most
        assert set(woken) <= waiting
        assert bool(woken) == (len(running) < most and bool(waiting))
    for key in list(running):
        running.pop(key).close()
        turns.settle(key)
    while waiting:
        woken.clear()
        for key in sorted(waiting):  # one of them may
            with suppress(NotYourTurn), turns.turn(key, owners[key]):
                waiting.discard(key)
                break
        else:
            raise AssertionError(f"nobody may, although nothing runs: {waiting}")


def test_whoever_has_the_fewest_is_next() -> None:
    woken: list[str] = []
    turns = TransferTurns(2, woken.append)
    with ExitStack() as first, ExitStack() as second:
        first.enter_context(turns.turn("a1", "ada"))
        second.enter_context(turns.turn("a2", "ada"))
        for key, owner in (("a3", "ada"), ("b1", "bob")):
            with pytest.raises(NotYourTurn), turns.turn(key, owner):
                pass
        woken.clear()
        first.close()
        assert woken == ["b1"]
        with pytest.raises(NotYourTurn), turns.turn("a3", "ada"):
            pass
        with turns.turn("b1", "bob"):
            pass
        assert woken[-1] == "a3"
