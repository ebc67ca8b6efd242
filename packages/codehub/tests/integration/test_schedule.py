"""A real coordinator on real PostgreSQL follows schedules by the clock: at the minute, in the owner's time zone, once."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from codehub.adapters.postgres.pool import Database
from codehub.control.deps import CoordinatorSettings, ScheduleSettings
from codehub.domain.applied_template import AppliedTemplate
from codehub.domain.model import DesiredState, Operation, Phase, Workspace
from codehub.domain.schedule import Schedule, next_start
from testing.codehub.coordinators import MemoryParts, leading, row_of, settings, until
from testing.codehub.rows import put_workspace
from testing.codehub.workspaces import workspace

_ZONE = ZoneInfo("Asia/Kolkata")  # half an hour off: UTC's minutes are not the owner's
_SOON = timedelta(seconds=5)
_TWO_HOURS = timedelta(hours=2)


def due_at(id_: str, moment: datetime) -> Schedule:
    """Return a schedule by which this workspace starts at that moment: a full minute, less its part of the jitter."""
    at = (moment.astimezone(_ZONE) + timedelta(minutes=2)).replace(second=0, microsecond=0)
    probe = Schedule(at.time(), frozenset({at.weekday()}), _TWO_HOURS)
    early = at - next_start(probe, id_, _ZONE, at.astimezone(UTC) - _TWO_HOURS)
    return replace(probe, jitter=(at - moment) * (_TWO_HOURS / early))


def applied(schedule: Schedule) -> AppliedTemplate:
    return AppliedTemplate("nine-to-five", 1, "code-server", "code-server", schedule=schedule)


def scheduled(id_: str, schedule: Schedule) -> Workspace:
    now = datetime.now(UTC)
    made = workspace(id_, desired=DesiredState.RUNNING, created_at=now)
    return replace(made, last_access_at=now, name=id_, template=applied(schedule))


def following(interval_s: float = 0.1) -> CoordinatorSettings:
    return replace(settings(), schedule=ScheduleSettings(interval_s))


async def has_phase(database: Database, id_: str, phase: Phase) -> None:
    async def there() -> bool:
        row = await row_of(database, id_)
        return row.phase is phase and row.operation is Operation.NONE

    await until(there, f"{id_} becomes {phase}")


async def set_zone(database: Database, zone: str) -> None:
    async with database.transaction() as tx:
        await tx.execute("UPDATE users SET time_zone = %s", [zone])


async def said_by_schedule(database: Database, id_: str) -> list[tuple[datetime, str]]:
    async with database.transaction() as tx:
        rows = await tx.execute(
            "SELECT at, message FROM workspace_events WHERE workspace_id = %s AND kind = 'schedule' ORDER BY at",
            [id_],
        )
        return [(row["at"], row["message"]) for row in await rows.fetchall()]


_ON_TIME = "01980000-0000-7000-8000-000000000001"
_OTHER_DAY = "01980000-0000-7000-8000-000000000002"
_PAST = "01980000-0000-7000-8000-000000000003"


async def test_a_sleeping_workspace_starts_at_its_minute_and_the_others_sleep_on(database: Database) -> None:
    ids, now = (_ON_TIME, _OTHER_DAY, _PAST), datetime.now(UTC)
    for id_ in ids:
        await put_workspace(database, scheduled(id_, due_at(id_, now)))
    await set_zone(database, _ZONE.key)
    parts = MemoryParts()
    async with leading(database, parts):
        for id_ in ids:
            await has_phase(database, id_, Phase.RUNNING)
    # They sleep. Now their schedules follow from the clock: soon, soon but on another day, and an hour ago.
    moment = datetime.now(UTC) + _SOON
    soon = due_at(_OTHER_DAY, moment)
    schedules = {
        _ON_TIME: due_at(_ON_TIME, moment),
        _OTHER_DAY: replace(soon, days=frozenset(range(7)) - soon.days),
        _PAST: due_at(_PAST, moment - timedelta(hours=1)),
    }
    for id_, schedule in schedules.items():
        row = await row_of(database, id_)
        await put_workspace(database, replace(row, desired_state=DesiredState.STANDBY, template=applied(schedule)))
    await set_zone(database, _ZONE.key)
    async with leading(database, parts, following()):
        for id_ in ids:
            await has_phase(database, id_, Phase.STANDBY)
        await has_phase(database, _ON_TIME, Phase.RUNNING)
        ((at, said),) = await said_by_schedule(database, _ON_TIME)
        assert said == "Started by its schedule"
        assert at >= moment
        # Put to sleep again after its minute, it stays asleep: each start happens once.
        row = await row_of(database, _ON_TIME)
        await put_workspace(database, replace(row, desired_state=DesiredState.STANDBY))
        await has_phase(database, _ON_TIME, Phase.STANDBY)
        followed = await last_followed(database)

        async def goes_on() -> bool:
            return await last_followed(database) > followed

        await until(goes_on, "the schedules are followed again")
        assert len(await said_by_schedule(database, _ON_TIME)) == 1
        for id_ in ids:
            assert (await row_of(database, id_)).phase is Phase.STANDBY
    assert await said_by_schedule(database, _OTHER_DAY) == await said_by_schedule(database, _PAST) == []


async def test_a_start_that_fell_into_a_change_of_leaders_is_made_up_for(database: Database) -> None:
    parts = MemoryParts()
    await put_workspace(database, scheduled(_ON_TIME, due_at(_ON_TIME, datetime.now(UTC) - timedelta(hours=1))))
    await set_zone(database, _ZONE.key)
    async with leading(database, parts, following()):
        await has_phase(database, _ON_TIME, Phase.RUNNING)
        await until(lambda: was_followed(database), "the schedules are followed")
    # Nobody leads while its minute passes.
    moment = datetime.now(UTC) + timedelta(seconds=1)
    row = await row_of(database, _ON_TIME)
    asleep = replace(row, desired_state=DesiredState.STANDBY, template=applied(due_at(_ON_TIME, moment)))
    await put_workspace(database, asleep)
    await until(lambda: passed(moment), "its minute passes")
    async with leading(database, parts, following()):
        await until(lambda: was_said(database, _ON_TIME), "it is started by its schedule")
        await has_phase(database, _ON_TIME, Phase.RUNNING)
    assert [said for _, said in await said_by_schedule(database, _ON_TIME)] == ["Started by its schedule"]


async def was_said(database: Database, id_: str) -> bool:
    return bool(await said_by_schedule(database, id_))


async def passed(moment: datetime) -> bool:
    return datetime.now(UTC) > moment


async def last_followed(database: Database) -> datetime:
    async with database.transaction() as tx:
        row = await (await tx.execute("SELECT value FROM system_facts WHERE name = 'schedules_followed'")).fetchone()
    return datetime.fromisoformat(row["value"]) if row is not None else datetime.min.replace(tzinfo=UTC)


async def was_followed(database: Database) -> bool:
    return (await last_followed(database)).year > 1
