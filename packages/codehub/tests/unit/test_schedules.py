"""When a schedule starts and stops a workspace: time zones, changes of the clock, jitter."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codehub.domain.applied_template import AppliedTemplate
from codehub.domain.errors import Invalid
from codehub.domain.follow_schedule import next_scheduled, scheduled_state
from codehub.domain.model import DesiredState, ErrorReason, Operation, Phase, Workspace
from codehub.domain.schedule import Moment, due_moment, next_start, parse_schedule, time_zone
from codehub.domain.wording import scheduled_text
from testing.codehub.workspaces import workspace


@given(
    st.datetimes(datetime(2024, 1, 1), datetime(2030, 1, 1)),
    st.sampled_from(["UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata", "Pacific/Kiritimati"]),
    st.sampled_from(["weekdays", "weekends", "daily", "mon", "sat,sun"]),
    st.text(min_size=1, max_size=36),
)
def test_the_next_start_is_later_within_a_week_and_never_after_its_time(
    now: datetime, zone_name: str, days: str, workspace_id: str
) -> None:
    after, zone = now.replace(tzinfo=UTC), time_zone(zone_name)
    schedule = parse_schedule("9:00", days)
    start = next_start(schedule, workspace_id, zone, after)
    assert after < start <= after + timedelta(days=8)
    latest = (start + schedule.jitter).astimezone(zone)
    assert start.astimezone(zone).strftime("%H:%M") <= "09:00" <= latest.strftime("%H:%M")
    assert latest.weekday() in schedule.days
    assert next_start(schedule, workspace_id, zone, after) == start


def test_a_skipped_time_of_day_counts_and_a_repeated_one_counts_once() -> None:
    schedule, zone = replace(parse_schedule("2:30", "daily"), jitter=timedelta()), time_zone("Europe/Berlin")

    def starts(first: datetime) -> list[str]:
        found = [next_start(schedule, "a", zone, first)]
        found += [next_start(schedule, "a", zone, found[-1])]
        return [each.astimezone(zone).isoformat() for each in found]

    assert starts(datetime(2027, 3, 27, 12, tzinfo=UTC)) == ["2027-03-28T03:30:00+02:00", "2027-03-29T02:30:00+02:00"]
    assert starts(datetime(2026, 10, 24, 12, tzinfo=UTC)) == [
        "2026-10-25T02:30:00+02:00",
        "2026-10-26T02:30:00+01:00",
    ]


def test_workspaces_of_one_schedule_do_not_start_in_the_same_second() -> None:
    schedule, zone = parse_schedule("9:00"), time_zone("UTC")
    after = datetime(2026, 11, 16, tzinfo=UTC)
    assert len({next_start(schedule, str(n), zone, after) for n in range(50)}) == 50


@given(
    st.datetimes(datetime(2024, 1, 1), datetime(2030, 1, 1)),
    st.sampled_from(["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe"]),
    st.lists(st.integers(1, 30), min_size=1, max_size=12),
    st.uuids().map(str),
)
def test_however_often_it_is_asked_a_schedule_starts_once_a_day(
    begin: datetime, zone_name: str, hours: list[int], workspace_id: str
) -> None:
    """Also over changes of the clock: every start of the whole span is seen by exactly one of its parts."""
    zone, schedule = time_zone(zone_name), parse_schedule("2:30", "daily")
    since = begin.replace(tzinfo=UTC)
    seen = 0
    for step in hours:
        # Parts short enough to hold one start at most.
        now = since + timedelta(hours=min(step, 12))
        seen += due_moment(schedule, workspace_id, zone, since, now) is Moment.START
        since = now
    expected, at = 0, next_start(schedule, workspace_id, zone, begin.replace(tzinfo=UTC))
    while at <= since:
        expected, at = expected + 1, next_start(schedule, workspace_id, zone, at)
    assert seen == expected


def test_a_stop_comes_after_its_start_on_the_same_day_and_the_last_of_both_counts() -> None:
    schedule, zone = parse_schedule("9:00", jitter=timedelta(), stop="18:00"), time_zone("UTC")
    monday = datetime(2026, 11, 16, tzinfo=UTC)
    assert due_moment(schedule, "w", zone, monday, monday + timedelta(hours=10)) is Moment.START
    assert due_moment(schedule, "w", zone, monday, monday + timedelta(hours=19)) is Moment.STOP
    assert due_moment(schedule, "w", zone, monday + timedelta(hours=10), monday + timedelta(hours=12)) is None
    with pytest.raises(Invalid, match="later on the same day"):
        parse_schedule("9:00", stop="8:00")


@pytest.mark.parametrize("name", ["", "/etc/passwd", "../UTC", "Europe/Nowhere", "x" * 300, "a\0b"])
def test_what_is_no_time_zone_is_refused(name: str) -> None:
    with pytest.raises(Invalid):
        time_zone(name)


def scheduled(**changes: Any) -> Workspace:
    template = AppliedTemplate("web", 1, "x", "x", schedule=parse_schedule("9:00", jitter=timedelta(), stop="18:00"))
    return replace(workspace(), template=template, **changes)


NINE, SIX = datetime(2026, 11, 16, 9, tzinfo=UTC), datetime(2026, 11, 16, 18, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def test_a_schedule_starts_what_rests_and_leaves_errors_and_late_starts_alone() -> None:
    rests = scheduled(desired_state=DesiredState.ARCHIVED, phase=Phase.ARCHIVED)
    assert scheduled_state(rests, "", NINE - MINUTE, NINE) is DesiredState.RUNNING
    assert scheduled_state(rests, "", NINE, NINE + MINUTE) is None
    assert scheduled_state(rests, "America/New_York", NINE - MINUTE, NINE) is None
    assert scheduled_state(rests, "", NINE - timedelta(days=3), NINE + timedelta(hours=2)) is None, "too late"
    broken = replace(rests, phase=Phase.ERROR, error_reason=ErrorReason.TIMEOUT)
    assert scheduled_state(broken, "", NINE - MINUTE, NINE) is None
    assert scheduled_state(replace(rests, desired_state=DesiredState.DELETED), "", NINE - MINUTE, NINE) is None
    assert scheduled_state(rests, "", None, NINE) is None, "a first look starts nothing"


def test_a_schedule_stops_what_nobody_uses() -> None:
    runs = scheduled(
        desired_state=DesiredState.RUNNING, phase=Phase.RUNNING, last_access_at=SIX - timedelta(minutes=30)
    )
    assert scheduled_state(runs, "", SIX - MINUTE, SIX) is DesiredState.STANDBY
    assert scheduled_state(replace(runs, last_access_at=SIX - MINUTE), "", SIX - MINUTE, SIX) is None
    assert scheduled_state(replace(runs, keep_awake_until=SIX + MINUTE), "", SIX - MINUTE, SIX) is None
    assert scheduled_state(replace(runs, operation=Operation.STOPPING), "", SIX - MINUTE, SIX) is None


def text_of(found: Workspace, zone: str | None, now: datetime) -> str:
    scheduled = next_scheduled(found, zone, now)
    return "" if scheduled is None else scheduled_text(scheduled)


def test_the_next_start_and_stop_are_said_in_the_owners_time_zone() -> None:
    rests = scheduled(desired_state=DesiredState.STANDBY, phase=Phase.STANDBY)
    friday = datetime(2026, 11, 20, 12, tzinfo=UTC)
    assert text_of(rests, "Europe/Berlin", friday) == "Starts Monday 23 Nov 09:00 Europe/Berlin"
    assert text_of(rests, "", friday) == "Starts Monday 23 Nov 09:00 UTC"
    assert text_of(rests, "Asia/Tokyo", NINE) == "Starts Tuesday 17 Nov 09:00 Asia/Tokyo"
    runs = replace(rests, desired_state=DesiredState.RUNNING, phase=Phase.RUNNING)
    assert (
        text_of(runs, "America/New_York", NINE) == "Sleeps Monday 16 Nov 18:00 America/New_York unless it is in use"
    )
    across = datetime(2026, 3, 27, 12, tzinfo=UTC)  # the clock changes on Sunday
    assert text_of(rests, "Europe/Berlin", across) == "Starts Monday 30 Mar 09:00 Europe/Berlin"


def test_nothing_is_said_to_start_that_no_schedule_will_start() -> None:
    rests = scheduled(desired_state=DesiredState.STANDBY, phase=Phase.STANDBY)
    for changes in (
        {"phase": Phase.ERROR, "error_reason": ErrorReason.TIMEOUT},
        {"desired_state": DesiredState.DELETED},
        {"deleted_at": NINE},
        {"template": None},
        {"desired_state": DesiredState.RUNNING},
    ):
        assert text_of(replace(rests, **changes), "", NINE) == "", changes
    assert text_of(rests, None, NINE) == "", "its owner is disabled"
    assert text_of(rests, "Mars/Olympus", NINE) == ""
