"""The contract of the stores of the TTL, schedule, disk and garbage collection runners, in memory and on PostgreSQL."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from codehub.domain.errors import Deposed
from codehub.domain.gc import archive_key_of, is_protected
from codehub.domain.limits import RunningLimits
from codehub.domain.model import (
    Busy,
    DesiredState,
    HomeCtx,
    Operation,
    Phase,
    Workspace,
)
from codehub.domain.schedule import parse_schedule
from codehub.domain.ttl import ActivityCoverage, Span, is_to_archive, is_to_sleep
from codehub.ports.archives import ArchivePlace
from codehub.ports.control_store import (
    Change,
)
from codehub.ports.homes import ArchiveReceipt
from testing.codehub.contracts.control_store import StoreWorld, applied, one, ws
from testing.codehub.workspaces import NOW


class RunnerStoresContract:
    async def test_access_never_goes_backwards(self, world: StoreWorld) -> None:
        epoch = await world.elect()
        await world.put(ws())
        later = NOW + timedelta(minutes=1)
        await world.ttl.note_access(epoch, {ws().id: later, ws(9).id: later})
        await world.ttl.note_access(epoch, {ws().id: NOW})
        assert (await one(world, ws().id)).last_access_at == later

    async def test_busy_is_noted_with_its_reason_and_counts_as_an_access(self, world: StoreWorld) -> None:
        epoch = await world.elect()
        await world.put(ws(1, phase=Phase.RUNNING, last_access_at=NOW - timedelta(hours=1)))
        busy = Busy("pytest -n 4", NOW - timedelta(minutes=30), NOW)
        await world.ttl.note_busy(epoch, {ws(1).id: busy})
        found = await one(world, ws(1).id)
        assert (found.busy, found.last_access_at) == (busy, NOW)
        await world.ttl.note_busy(epoch, {ws(1).id: None})
        found = await one(world, ws(1).id)
        assert (found.busy, found.last_access_at) == (None, NOW)

    async def test_the_statements_of_the_ttl_are_the_rules_of_the_domain(self, world: StoreWorld) -> None:
        epoch = await world.elect()
        ttl = timedelta(minutes=10)
        rows = _ttl_rows()
        for row in rows:
            await world.put(row)
        gaps = [
            Span(NOW - timedelta(minutes=25), NOW - timedelta(minutes=18)),
            Span(NOW - timedelta(minutes=8), NOW + timedelta(minutes=1)),
        ]
        to_sleep = {row.id for row in rows if is_to_sleep(row, NOW, ttl, gaps)}
        to_archive = {row.id for row in rows if is_to_archive(row, NOW, ttl)}
        assert to_sleep
        assert to_archive
        assert {row.id for row in await world.ttl.idle(NOW, ttl, gaps)} == to_sleep
        unasked, *asked = sorted(to_sleep)
        assert sorted(await world.ttl.put_to_sleep(epoch, NOW, ttl, gaps, {unasked})) == asked
        assert (await one(world, unasked)).desired_state is DesiredState.RUNNING
        assert await world.ttl.put_to_sleep(epoch, NOW, ttl, gaps) == [unasked]
        assert set(await world.ttl.put_to_archive(epoch, NOW, ttl)) == to_archive
        for row in rows:
            desired = (await one(world, row.id)).desired_state
            if row.id in to_sleep:
                assert desired is DesiredState.STANDBY
            elif row.id in to_archive:
                assert desired is DesiredState.ARCHIVED
            else:
                assert desired is row.desired_state
        assert await world.kinds(sorted(to_sleep)[0]) == ["put_to_sleep"]
        assert await world.ttl.put_to_sleep(epoch, NOW, ttl, gaps) == []

    async def test_what_was_seen_is_kept(self, world: StoreWorld) -> None:
        epoch = await world.elect()
        coverage = ActivityCoverage(NOW, (Span(NOW - timedelta(hours=1), NOW),))
        await world.ttl.record_coverage(epoch, ActivityCoverage(NOW))
        await world.ttl.record_coverage(epoch, coverage)
        assert await world.ttl.coverage() == coverage

    async def test_only_what_was_deleted_long_ago_is_purged(self, world: StoreWorld) -> None:
        epoch = await world.elect()
        gone = {"desired_state": DesiredState.DELETED, "phase": Phase.DELETED}
        await world.put(ws(1))
        await world.put(ws(2, **gone, deleted_at=NOW - timedelta(hours=23)))
        await world.put(ws(3, **gone, deleted_at=NOW - timedelta(hours=25)))
        assert await world.gc.begin_purges(epoch, NOW, timedelta(hours=24)) == [ws(3).id]
        assert await world.gc.begin_purges(epoch, NOW, timedelta(hours=24)) == []
        claims = await world.gc.claims([ws(n).id for n in range(1, 5)], 2)
        assert {id_: claim.purged_at is not None for id_, claim in claims.items()} == {
            ws(1).id: False,
            ws(2).id: False,
            ws(3).id: True,
        }

    async def test_the_newest_generations_are_kept(self, world: StoreWorld) -> None:
        epoch = await world.elect()
        await world.put(ws())
        for number in range(4):
            row = await one(world, ws().id)
            made = ArchiveReceipt(archive_key_of(row.id, f"op-{number}"), f"op-{number}", 1, "0" * 64)
            at = NOW + timedelta(minutes=number)
            await world.store.commit(epoch, Change(row, row, generation=made), at)
        assert (await world.gc.claims([ws().id], 2))[ws().id].kept == {"op-2", "op-3"}
        await world.gc.forget_archive(epoch, ArchivePlace(ws().id, "op-3", archive_key_of(ws().id, "op-3")))
        assert (await world.gc.claims([ws().id], 2))[ws().id].kept == {"op-1", "op-2"}

    async def test_an_orphan_keeps_the_time_it_was_first_seen_until_it_is_none(self, world: StoreWorld) -> None:
        epoch = await world.elect()
        a, b = (ArchivePlace(ws().id, op, archive_key_of(ws().id, op)) for op in ("a", "b"))
        later = NOW + timedelta(hours=1)
        await world.gc.note_orphans(epoch, [a], NOW)
        await world.gc.note_orphans(epoch, [a, b], later)
        assert await world.gc.orphans() == [(a, NOW), (b, later)]
        await world.gc.note_orphans(epoch, [b], later)
        assert await world.gc.orphans() == [(b, later)]
        await world.gc.forget_archive(epoch, b)
        assert await world.gc.orphans() == []

    async def test_a_templates_own_times_count(self, world: StoreWorld) -> None:
        epoch = await world.elect()
        at = NOW - timedelta(minutes=30)
        soon, late = (applied(1, ttl_standby=timedelta(minutes=minutes)) for minutes in (20, 60))
        running = {"phase": Phase.RUNNING, "desired_state": DesiredState.RUNNING, "phase_changed_at": at}
        for number, template in enumerate((None, soon, late), 1):
            await world.put(ws(number, template=template, **running))
        ttl = timedelta(minutes=45)
        assert [row.id for row in await world.ttl.idle(NOW, ttl, ())] == [ws(2).id]
        assert await world.ttl.put_to_sleep(epoch, NOW, ttl, ()) == [ws(2).id]
        assert await world.ttl.put_to_sleep(epoch, NOW + timedelta(minutes=16), ttl, ()) == [ws(1).id]

    async def test_what_a_copy_begins_from_is_claimed_until_the_copy_is_purged(self, world: StoreWorld) -> None:
        key = archive_key_of(ws(1).id, "op-1")
        await world.put(ws(1, archive_key=archive_key_of(ws(1).id, "op-2"), purged_at=NOW, deleted_at=NOW))
        await world.put(ws(2, copy_of=ws(1).id, archive_key=key))
        await world.put(ws(3, copy_of=ws(2).id, archive_key=key))
        claims = await world.gc.claims([ws(1).id], 2)
        assert claims[ws(1).id].used_by_others == {key}
        assert is_protected(claims[ws(1).id], "op-1")
        assert not is_protected(claims[ws(1).id], "op-2")
        await world.put(ws(2, copy_of=ws(1).id, archive_key=None))
        assert (await world.gc.claims([ws(1).id], 2))[ws(1).id].used_by_others == {key}, "a copy of the copy needs it"
        await world.put(ws(3, copy_of=ws(2).id, archive_key=key, purged_at=NOW, deleted_at=NOW))
        assert (await world.gc.claims([ws(1).id], 2))[ws(1).id].used_by_others == frozenset()

    async def test_what_is_being_copied_is_claimed_until_the_copy_is_made_or_given_up(
        self, world: StoreWorld
    ) -> None:
        await world.put(ws(1))
        copy = {"copy_of": ws(1).id, "archive_key": None, "archive_op_id": "op-7"}
        await world.put(ws(2, operation=Operation.DUPLICATING, **copy))
        await world.put(ws(3, operation=Operation.NONE, **copy | {"archive_op_id": "op-8"}))
        assert (await world.gc.claims([ws(1).id], 2))[ws(1).id].copying == {"op-7"}
        assert (await world.gc.claims([ws(2).id], 2))[ws(2).id].copying == frozenset()
        await world.put(ws(2, operation=Operation.NONE, **copy))
        assert (await world.gc.claims([ws(1).id], 2))[ws(1).id].copying == frozenset()

    async def test_a_schedule_starts_each_workspace_once_within_the_limits(self, world: StoreWorld) -> None:
        epoch = await world.elect()
        nine = datetime(2026, 11, 16, 9, tzinfo=UTC)  # a Monday
        template = applied(1, schedule=parse_schedule("9:00", jitter=timedelta()))
        for number in (1, 2, 3):
            await world.put(
                ws(number, phase=Phase.STANDBY, desired_state=DesiredState.STANDBY, template=template, created_at=NOW)
            )
        await world.put(ws(4, phase=Phase.STANDBY, desired_state=DesiredState.STANDBY))
        limits = RunningLimits(2, 100)
        follow = world.schedule.follow_schedules
        assert await follow(epoch, nine - timedelta(minutes=1), limits) == []
        assert sorted(await follow(epoch, nine, limits)) == [ws(1).id, ws(2).id]
        assert (await one(world, ws(1).id)).desired_state is DesiredState.RUNNING
        assert (await one(world, ws(1).id)).last_access_at == nine
        assert await world.kinds(ws(3).id) == ["schedule"], "the timeline says why it was not started"
        assert await follow(epoch, nine + timedelta(minutes=1), limits) == []
        with pytest.raises(Deposed):
            await follow(epoch - 1, nine + timedelta(days=1), limits)

    async def test_homes_are_measured_in_turn_and_noted_while_they_are_the_same(self, world: StoreWorld) -> None:
        epoch = await world.elect()
        every, at = timedelta(minutes=10), NOW - timedelta(hours=1)
        running = {"phase": Phase.RUNNING, "home_ctx": HomeCtx("inc-1"), "phase_changed_at": at}
        earlier, lately = NOW - timedelta(minutes=30), NOW - timedelta(minutes=5)
        rows = [
            ws(1, disk_checked_at=earlier, disk_bytes=7, **running),
            ws(2, **running),
            ws(3, disk_checked_at=lately, **running),
            ws(4, disk_checked_at=earlier, **{**running, "phase": Phase.STANDBY}),
            ws(5, **{**running, "home_ctx": None}),
            ws(6, **{**running, "operation": Operation.STOPPING}),
            ws(7, **{**running, "phase": Phase.STANDBY, "phase_changed_at": NOW}, disk_checked_at=at),
        ]
        for row in rows:
            await world.put(row)
        due = await world.disk.to_measure(NOW, every, 10)
        assert [row.id for row in due] == [ws(2).id, ws(7).id, ws(1).id], "those first that waited longest"
        assert due[2].disk_bytes == 7
        assert [row.id for row in await world.disk.to_measure(NOW, every, 1)] == [ws(2).id]
        others = await world.disk.to_measure(NOW, every, 1, without=[ws(2).id, ws(7).id])
        assert [row.id for row in others] == [ws(1).id], "one that is left out takes nobody's place"
        await world.disk.note_disk(epoch, due[0], 4096, NOW)
        noted = await one(world, ws(2).id)
        assert (noted.disk_bytes, noted.disk_checked_at) == (4096, NOW)
        await world.disk.note_disk(epoch, due[0], None, NOW)
        assert (await one(world, ws(2).id)).disk_bytes is None, "unknown is kept as unknown"
        await world.put(ws(1, **{**running, "home_ctx": HomeCtx("inc-2")}))
        await world.disk.note_disk(epoch, due[2], 5, NOW)
        assert (await one(world, ws(1).id)).disk_checked_at is None, "it is another home by now"
        with pytest.raises(Deposed):
            await world.disk.note_disk(epoch - 1, due[0], 5, NOW)


def _ttl_rows() -> list[Workspace]:
    """Return one row for each way in which the rules can be met or missed."""
    rows: list[Workspace] = []

    def add(phase: Phase, desired: DesiredState, minutes: int, **changes: Any) -> None:
        at: datetime = NOW - timedelta(minutes=minutes)
        rows.append(ws(len(rows) + 1, phase=phase, desired_state=desired, phase_changed_at=at, **changes))

    for minutes in (5, 10, 12, 17, 20, 30, 60):
        add(Phase.RUNNING, DesiredState.RUNNING, minutes)
        add(Phase.RUNNING, DesiredState.RUNNING, 60, last_access_at=NOW - timedelta(minutes=minutes))
        add(Phase.STANDBY, DesiredState.STANDBY, minutes)
    add(Phase.RUNNING, DesiredState.STANDBY, 60)
    add(Phase.RUNNING, DesiredState.RUNNING, 60, operation=Operation.STARTING)
    add(Phase.STANDBY, DesiredState.RUNNING, 60)
    add(Phase.STANDBY, DesiredState.STANDBY, 60, operation=Operation.ARCHIVING)
    add(Phase.STANDBY, DesiredState.STANDBY, 60, deleted_at=NOW)
    add(Phase.RUNNING, DesiredState.RUNNING, 60, keep_awake_until=NOW + timedelta(minutes=1))
    add(Phase.RUNNING, DesiredState.RUNNING, 60, keep_awake_until=NOW)
    return rows
