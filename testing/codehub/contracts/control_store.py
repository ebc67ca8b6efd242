"""The contract of the coordinator's store, in memory and on PostgreSQL."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any, Protocol

import pytest

from codehub.domain.applied_template import AppliedTemplate
from codehub.domain.dev_image import DevImage
from codehub.domain.errors import Deposed
from codehub.domain.gc import archive_key_of
from codehub.domain.model import (
    Condition,
    Conditions,
    ConditionStatus,
    DesiredState,
    ErrorReason,
    HomeCtx,
    Operation,
    Phase,
    Progress,
    Workspace,
)
from codehub.domain.stores import StoreRecord
from codehub.domain.ttl import ActivityCoverage
from codehub.ports.archives import ArchivePlace
from codehub.ports.control_store import (
    Change,
    ControlStore,
    DiskStore,
    GcStore,
    ScheduleStore,
    StoreRegistry,
    TimelineEvent,
    TtlStore,
)
from codehub.ports.homes import ArchiveReceipt
from testing.codehub.workspaces import NOW, workspace


class StoreWorld(Protocol):
    store: ControlStore
    ttl: TtlStore
    gc: GcStore
    registry: StoreRegistry
    schedule: ScheduleStore
    disk: DiskStore

    async def elect(self) -> int:
        """Return a new leader's epoch."""
        ...

    async def put(self, row: Workspace) -> None:
        """Insert a row or overwrite every column, as the API would."""
        ...

    async def kinds(self, workspace_id: str) -> list[str]:
        """Return the kinds of its timeline entries, oldest first."""
        ...


def ws(number: int = 1, /, **changes: Any) -> Workspace:
    return replace(workspace(f"01980000-0000-7000-8000-{number:012d}"), **changes)


async def one(world: StoreWorld, workspace_id: str) -> Workspace:
    return (await world.store.load([workspace_id]))[0].workspace


CONDITIONS = Conditions(
    volume_ready=Condition(ConditionStatus.TRUE, "Ready", "", NOW),
    archive_ready=Condition(ConditionStatus.FALSE, "NoArchive", "", NOW),
    container_ready=Condition(ConditionStatus.UNKNOWN, "NotObserved", "away", NOW),
    healthy=Condition(ConditionStatus.TRUE, "AllConditionsMet", "", NOW),
)


def intent(row: Workspace) -> Change:
    after = replace(
        row,
        operation=Operation.ARCHIVING,
        op_started_at=NOW,
        archive_op_id="op-1",
        conditions=CONDITIONS,
        phase=Phase.STANDBY,
        home_ctx=HomeCtx("inc-1", None),
        observed_at=NOW,
        progress=Progress("x", 1, 2),
    )
    return Change(row, after, is_intent=True, events=(TimelineEvent("operation_started", "Archiving", {"a": 1}),))


class ControlStoreContract:
    async def test_a_committed_change_is_read_back_whole(self, world: StoreWorld) -> None:
        epoch = await world.elect()
        await world.put(ws())
        change = intent(ws())
        row = await world.store.commit(epoch, change, NOW)
        assert row is not None
        assert row.workspace == replace(change.after, updated_at=NOW)
        assert (await world.store.load([ws().id]))[0] == row
        assert await world.kinds(ws().id) == ["operation_started"]

    async def test_a_deposed_leaders_write_changes_nothing(self, world: StoreWorld) -> None:
        old = await world.elect()
        await world.put(ws())
        epoch = await world.elect()
        assert epoch == old + 1
        before = await world.store.load()
        place = ArchivePlace(ws().id, "op-1", archive_key_of(ws().id, "op-1"))
        for late in (
            world.store.commit(old, intent(ws()), NOW),
            world.store.note_observed(old, [ws().id], NOW),
            world.store.note_progress(old, ws(), Progress("x")),
            world.ttl.note_access(old, {ws().id: NOW}),
            world.ttl.record_coverage(old, ActivityCoverage(NOW)),
            world.ttl.put_to_sleep(old, NOW, timedelta(), ()),
            world.ttl.put_to_archive(old, NOW, timedelta()),
            world.gc.begin_purges(old, NOW, timedelta()),
            world.gc.note_orphans(old, [place], NOW),
            world.gc.forget_archive(old, place),
        ):
            with pytest.raises(Deposed):
                await late
        await world.store.note_components(old, {"late": {}})
        assert await world.store.load() == before
        assert await world.gc.orphans() == []
        assert await world.ttl.coverage() == ActivityCoverage()

    @pytest.mark.parametrize(
        "moved",
        [
            {"operation": Operation.STARTING},
            {"archive_op_id": "another"},
            {"archive_key": "another/key/home.tar.zst"},
            {"error_reason": ErrorReason.TIMEOUT, "phase": Phase.ERROR},
            {"deleted_at": NOW},
            {"desired_state": DesiredState.ARCHIVED},
        ],
    )
    async def test_an_intent_depends_on_what_it_was_decided_from(
        self, world: StoreWorld, moved: dict[str, Any]
    ) -> None:
        epoch = await world.elect()
        await world.put(ws(**moved))
        assert await world.store.commit(epoch, intent(ws()), NOW) is None
        assert await one(world, ws().id) == ws(**moved)
        assert await world.kinds(ws().id) == []

    async def test_an_outcome_is_committed_whatever_is_desired_by_now(self, world: StoreWorld) -> None:
        epoch = await world.elect()
        await world.put(ws(desired_state=DesiredState.STANDBY, last_access_at=NOW, name="renamed"))
        receipt = ArchiveReceipt(archive_key_of(ws().id, "op-1"), "op-1", 50, "0" * 64)
        change = Change(ws(), ws(archive_key=receipt.archive_key), generation=receipt)
        row = await world.store.commit(epoch, change, NOW)
        assert row is not None
        assert row.workspace.desired_state is DesiredState.STANDBY
        assert row.workspace.name == "renamed"
        again = Change(row.workspace, row.workspace, generation=receipt)
        assert await world.store.commit(epoch, again, NOW) is not None
        claim = (await world.gc.claims([ws().id], 2))[ws().id]
        assert claim.kept == {"op-1"}
        assert claim.archive_key == receipt.archive_key

    async def test_claims_say_whether_an_error_is_recorded_and_whether_the_home_is_seen(
        self, world: StoreWorld
    ) -> None:
        await world.put(ws(1))
        deleting = {"phase": Phase.DELETING, "desired_state": DesiredState.DELETED}
        await world.put(ws(2, error_reason=ErrorReason.DATA_LOST, error_message="gone", **deleting))
        seen = Conditions(volume_ready=Condition(ConditionStatus.TRUE, "Ready"))
        await world.put(ws(3, conditions=seen))
        claims = await world.gc.claims([ws(n).id for n in (1, 2, 3)], 2)
        assert [claims[ws(n).id].error_recorded for n in (1, 2, 3)] == [False, True, False]
        assert [claims[ws(n).id].home_is_seen for n in (1, 2, 3)] == [False, False, True]

    async def test_the_stores_are_remembered_and_evidence_of_them_is_given(self, world: StoreWorld) -> None:
        epoch = await world.elect()
        assert await world.registry.store_records() == {}
        record = StoreRecord("store-1", "/srv/homes")
        await world.registry.record_store(epoch, "homes", record)
        await world.registry.record_store(epoch, "homes", record)
        assert await world.registry.store_records() == {"homes": record}
        await world.put(ws(1, home_ctx=HomeCtx("inc-1")))
        await world.put(ws(2, archive_key=archive_key_of(ws(2).id, "op-1")))
        lost = {"phase": Phase.ERROR, "error_reason": ErrorReason.DATA_LOST}
        await world.put(ws(3, home_ctx=HomeCtx("inc-3"), **lost))
        assert [row.id for row in await world.registry.store_evidence("homes", 5)] == [ws(1).id]
        assert [row.id for row in await world.registry.store_evidence("archives", 5)] == [ws(2).id]

    async def test_every_change_by_anybody_is_another_version(self, world: StoreWorld) -> None:
        epoch = await world.elect()
        await world.put(ws())
        await world.put(ws(2, deleted_at=NOW, phase=Phase.DELETED, desired_state=DesiredState.DELETED))
        first = await world.store.versions()
        assert set(first) == {ws().id}
        assert await world.store.versions() == first
        await world.put(ws(memo="changed"))
        second = await world.store.versions()
        assert second != first
        third = await world.store.note_observed(epoch, [ws().id, ws(2).id], NOW)
        assert third == await world.store.versions() != second
        assert (await one(world, ws().id)).observed_at == NOW
        assert [row.workspace.id for row in await world.store.load()] == [ws().id]
        assert len(await world.store.load([ws().id, ws(2).id])) == 2

    async def test_progress_is_noted_only_while_the_operation_is_the_same(self, world: StoreWorld) -> None:
        epoch = await world.elect()
        row = ws(operation=Operation.ARCHIVING, op_started_at=NOW)
        await world.put(row)
        await world.store.note_progress(epoch, row, Progress("archiving", 5, 10))
        assert (await one(world, row.id)).progress == Progress("archiving", 5, 10)
        await world.store.note_progress(epoch, replace(row, op_started_at=NOW - timedelta(1)), Progress("late", 9, 9))
        assert (await one(world, row.id)).progress == Progress("archiving", 5, 10)

    async def test_the_digest_of_an_archive_is_the_one_that_was_recorded(self, world: StoreWorld) -> None:
        epoch = await world.elect()
        await world.put(ws())
        row = await one(world, ws().id)
        made = ArchiveReceipt(f"{row.id}/op-1/home.tar.zst", "op-1", 5, "a" * 64)
        await world.store.commit(epoch, Change(row, row, generation=made), NOW)
        assert await world.store.archive_digest(row.id, made.archive_key) == made.sha256
        assert await world.store.archive_digest(row.id, "another") is None
        assert await world.store.archive_digest(ws(2).id, made.archive_key) is None

    async def test_restarts_are_counted_from_the_timeline(self, world: StoreWorld) -> None:
        epoch = await world.elect()
        await world.put(ws())
        for minute in (0, 5, 20):
            row = await one(world, ws().id)
            at = NOW + timedelta(minutes=minute)
            await world.store.commit(epoch, Change(row, row, events=(TimelineEvent("restarting", "again"),)), at)
        assert await world.store.restarts_since(ws().id, NOW + timedelta(minutes=4)) == 2
        assert await world.store.restarts_since(ws(2).id, NOW) == 0

    async def test_the_intent_to_start_takes_the_templates_update_and_no_other_does(self, world: StoreWorld) -> None:
        epoch = await world.elect()
        old, new = applied(1, image_ref="old"), applied(2, image_ref="new", ttl_standby=timedelta(hours=2))
        await world.put(ws(template=old, template_next=new, image_ref="old"))
        row = await one(world, ws().id)
        kept = await world.store.commit(epoch, intent(row), NOW)
        assert kept is not None
        assert (kept.workspace.template, kept.workspace.template_next) == (old, new)
        rests = replace(kept.workspace, operation=Operation.NONE)
        assert await world.store.commit(epoch, Change(kept.workspace, rests), NOW) is not None
        starts = Change(rests, replace(rests, operation=Operation.STARTING), is_intent=True)
        taken = await world.store.commit(epoch, starts, NOW)
        assert taken is not None
        found = taken.workspace
        assert (found.template, found.template_next, found.image_ref) == (new, None, "new")
        assert (await one(world, ws().id)) == found

    async def test_the_intent_to_start_takes_the_image_of_devcontainer_json_and_no_other_does(
        self, world: StoreWorld
    ) -> None:
        epoch = await world.elect()
        old, new = DevImage("1", "localhost/dev:1", ("a",)), DevImage("2", "localhost/dev:2", ("a", "b"))
        await world.put(ws(dev_image=old, dev_image_next=new, dev_image_auto=True))
        row = await one(world, ws().id)
        kept = await world.store.commit(epoch, intent(row), NOW)
        assert kept is not None
        assert (kept.workspace.dev_image, kept.workspace.dev_image_next) == (old, new)
        rests = replace(kept.workspace, operation=Operation.NONE)
        assert await world.store.commit(epoch, Change(kept.workspace, rests), NOW) is not None
        starts = Change(rests, replace(rests, operation=Operation.STARTING), is_intent=True)
        taken = await world.store.commit(epoch, starts, NOW)
        assert taken is not None
        found = taken.workspace
        assert (found.dev_image, found.dev_image_next, found.dev_image_auto) == (new, None, False)
        assert (await one(world, ws().id)) == found


def applied(version: int, **changes: Any) -> AppliedTemplate:
    return AppliedTemplate(**{"name": "web", "version": version, "image_ref": "x", "profile": "x", **changes})
