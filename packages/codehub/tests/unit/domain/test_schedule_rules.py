"""Schedules, and when the schedule, the TTL and the disk measurement leave a workspace alone."""

from __future__ import annotations

import struct
import zoneinfo
from dataclasses import replace
from datetime import UTC, datetime, time, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codehub.domain.applied_template import AppliedTemplate
from codehub.domain.busy import Work, judge_busy, shown_busy
from codehub.domain.disk import DiskLevel, disk_level, disk_limit, disk_used, is_to_measure
from codehub.domain.errors import Invalid
from codehub.domain.follow_schedule import scheduled_state
from codehub.domain.model import Busy, DesiredState, ErrorReason, HomeCtx, Operation, Phase, Workspace
from codehub.domain.schedule import (
    Schedule,
    due_moment,
    next_start,
    next_stop,
    parse_schedule,
    shown_days,
    shown_schedule,
    time_zone,
)
from codehub.domain.template_options import Size
from codehub.domain.ttl import (
    ActivityCoverage,
    Span,
    archive_ttl,
    extend_coverage,
    gap_time,
    idle_since,
    is_to_sleep,
    shortest_standby_ttl,
    sleeps_at,
    standby_ttl,
)
from testing.codehub.workspaces import NOW, workspace

MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)
MONDAY = datetime(2026, 11, 16, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "expected"), [("9:00", time(9)), ("09:05", time(9, 5)), ("0:00", time(0)), ("23:59", time(23, 59))]
)
def test_a_time_of_day_is_hours_and_minutes(text: str, expected: time) -> None:
    assert parse_schedule(text).at == expected


@pytest.mark.parametrize("text", ["24:00", "9:60", "9", "9:0", "9h", "", "-1:00", "9:00pm"])
def test_what_is_no_time_of_day_is_refused(text: str) -> None:
    with pytest.raises(Invalid, match="not a time of day"):
        parse_schedule(text)


@pytest.mark.parametrize(
    ("text", "days"),
    [
        ("weekdays", {0, 1, 2, 3, 4}),
        ("weekends", {5, 6}),
        ("daily", {0, 1, 2, 3, 4, 5, 6}),
        ("mon", {0}),
        ("Sun, wed", {2, 6}),
    ],
)
def test_days_are_a_group_or_a_list(text: str, days: set[int]) -> None:
    assert parse_schedule("9:00", text).days == days


@pytest.mark.parametrize("text", ["", "monday", "mon,", "mon;tue"])
def test_what_names_no_days_is_refused(text: str) -> None:
    with pytest.raises(Invalid, match="names no days"):
        parse_schedule("9:00", text)


@given(st.frozensets(st.integers(0, 6), min_size=1))
def test_days_that_are_shown_can_be_written_again(days: frozenset[int]) -> None:
    assert parse_schedule("9:00", shown_days(days)).days == days


def test_a_schedule_is_shown_as_people_say_it() -> None:
    assert shown_schedule(parse_schedule("9:00")) == "09:00 weekdays"
    assert shown_schedule(parse_schedule("8:30", "mon,wed", stop="18:00")) == "08:30 to 18:00 mon,wed"


def test_the_jitter_is_at_most_two_hours_and_a_stop_is_later_than_its_start() -> None:
    for jitter in (timedelta(), 2 * HOUR):
        assert parse_schedule("9:00", jitter=jitter).jitter == jitter
    for jitter in (-MINUTE, 2 * HOUR + MINUTE):
        with pytest.raises(Invalid, match="jitter"):
            parse_schedule("9:00", jitter=jitter)
    assert parse_schedule("9:00", stop="9:01").stop == time(9, 1)
    with pytest.raises(Invalid, match="later on the same day"):
        parse_schedule("9:00", stop="9:00")


@given(
    st.sampled_from(["weekdays", "sun", "sat,mon"]),
    st.datetimes(datetime(2026, 1, 1), datetime(2027, 1, 1)),
    st.uuids().map(str),
    st.sampled_from([0, 10, 120]),
)
def test_a_start_comes_early_and_a_stop_late_by_the_same_share_of_the_jitter(
    days: str, at: datetime, workspace_id: str, jitter: int
) -> None:
    zone, after = time_zone("UTC"), at.replace(tzinfo=UTC)
    jittery = parse_schedule("9:00", days, timedelta(minutes=jitter), "18:00")
    start, stop = next_start(jittery, workspace_id, zone, after), next_stop(jittery, workspace_id, zone, after)
    assert stop is not None
    early = timedelta(hours=9) - timedelta(hours=start.hour, minutes=start.minute, seconds=start.second)
    late = timedelta(hours=stop.hour, minutes=stop.minute, seconds=stop.second) - timedelta(hours=18)
    assert timedelta() <= early <= jittery.jitter
    assert timedelta() <= late <= jittery.jitter
    assert abs(early - late) <= timedelta(seconds=2)
    assert {start.weekday(), stop.weekday()} <= jittery.days
    # The first of its kind: none between.
    assert next_start(jittery, workspace_id, zone, start - timedelta(microseconds=1)) == start
    assert next_start(jittery, workspace_id, zone, start) > start
    assert after < start <= after + timedelta(days=8)
    assert next_stop(parse_schedule("9:00"), workspace_id, zone, after) is None


def test_shares_of_the_jitter_spread_over_all_of_it() -> None:
    schedule, zone = parse_schedule("9:00", jitter=2 * HOUR), time_zone("UTC")
    starts = [next_start(schedule, str(number), zone, MONDAY) for number in range(300)]
    nine = MONDAY + 9 * HOUR
    assert all(nine - 2 * HOUR < start <= nine for start in starts)
    assert min(starts) < nine - 1.8 * HOUR
    assert max(starts) > nine - 0.2 * HOUR


def test_a_moment_counts_in_the_span_that_ends_with_it() -> None:
    schedule, zone = parse_schedule("9:00", jitter=timedelta(), stop="18:00"), time_zone("UTC")
    nine, six = MONDAY + 9 * HOUR, MONDAY + 18 * HOUR
    for moment, kind in ((nine, "start"), (six, "stop")):
        assert due_moment(schedule, "w", zone, moment - MINUTE, moment) == kind
        assert due_moment(schedule, "w", zone, moment, moment + MINUTE) is None
        assert due_moment(schedule, "w", zone, moment - 2 * MINUTE, moment - MINUTE) is None
    # The last of several counts.
    assert due_moment(schedule, "w", zone, MONDAY, MONDAY + timedelta(days=1, hours=10)) == "start"
    assert due_moment(schedule, "w", zone, MONDAY, MONDAY + timedelta(days=2)) == "stop"


def test_an_empty_schedule_is_an_error_and_not_an_endless_search() -> None:
    with pytest.raises(AssertionError):
        next_start(Schedule(time(9), frozenset()), "w", time_zone("UTC"), MONDAY)


# what a schedule changes

NINE, SIX = MONDAY + 9 * HOUR, MONDAY + 18 * HOUR
_TEMPLATE = AppliedTemplate("web", 1, "x", "x", schedule=parse_schedule("9:00", jitter=timedelta(), stop="18:00"))
_RESTS = replace(workspace(desired=DesiredState.STANDBY), template=_TEMPLATE, phase=Phase.STANDBY)
_RUNS = replace(workspace(), template=_TEMPLATE, phase=Phase.RUNNING, last_access_at=SIX - HOUR)


def _at_nine(row: Workspace, since: datetime = NINE - MINUTE, now: datetime = NINE) -> DesiredState | None:
    return scheduled_state(row, "UTC", since, now)


def _at_six(**changes: Any) -> DesiredState | None:
    return scheduled_state(replace(_RUNS, **changes), "UTC", SIX - MINUTE, SIX)


def test_a_schedule_starts_what_rests_and_nothing_else() -> None:
    assert _at_nine(_RESTS) is DesiredState.RUNNING
    assert _at_nine(replace(_RESTS, desired_state=DesiredState.ARCHIVED)) is DesiredState.RUNNING
    for changes in (
        {"desired_state": DesiredState.RUNNING},
        {"desired_state": DesiredState.DELETED},
        {"phase": Phase.ERROR},
        {"error_reason": ErrorReason.TIMEOUT},
        {"deleted_at": NINE},
        {"of_newer_version": True},
        {"template": None},
        {"template": replace(_TEMPLATE, schedule=None)},
    ):
        assert _at_nine(replace(_RESTS, **changes)) is None, changes
    assert scheduled_state(_RESTS, "Not/AZone", NINE - MINUTE, NINE) is None


def test_a_start_that_was_missed_is_made_up_for_within_an_hour() -> None:
    assert _at_nine(_RESTS, NINE - HOUR, NINE + HOUR - MINUTE) is DesiredState.RUNNING
    assert _at_nine(_RESTS, NINE - HOUR, NINE + HOUR) is None


def test_a_schedule_stops_what_nobody_uses_and_nothing_works_in() -> None:
    assert _at_six() is DesiredState.STANDBY
    assert _at_six(last_access_at=None) is DesiredState.STANDBY
    assert _at_six(last_access_at=SIX - 10 * MINUTE) is DesiredState.STANDBY
    assert _at_six(last_access_at=SIX - 10 * MINUTE + timedelta(seconds=1)) is None
    assert _at_six(keep_awake_until=SIX) is DesiredState.STANDBY
    assert _at_six(keep_awake_until=SIX + MINUTE) is None
    assert _at_six(busy=Busy("training", SIX - HOUR, SIX)) is None
    assert _at_six(operation=Operation.STARTING) is None
    assert _at_six(phase=Phase.STANDBY) is None
    assert _at_six(desired_state=DesiredState.STANDBY) is None


# work without traffic


def test_work_counts_from_its_first_report_until_the_maximum() -> None:
    row, most = replace(_RUNS, last_access_at=NOW - 5 * HOUR), 2 * HOUR
    assert judge_busy(row, None, NOW, most) is None
    first = judge_busy(row, Work(NOW, "training"), NOW, most)
    assert first == Busy("training", NOW, NOW)
    went_on = replace(row, busy=first)
    assert judge_busy(went_on, Work(NOW, "x"), NOW + most, most) == Busy("x", NOW, NOW + most)
    assert judge_busy(went_on, Work(NOW, "x"), NOW + most + MINUTE, most) is None


def test_an_access_after_the_last_report_begins_the_count_again() -> None:
    before = Busy("training", NOW - 9 * HOUR, NOW - HOUR)
    used = replace(_RUNS, busy=before, last_access_at=NOW - MINUTE)
    assert judge_busy(used, Work(NOW, "x"), NOW, 2 * HOUR) == Busy("x", NOW, NOW)
    for accessed in (None, before.at):
        same = replace(used, last_access_at=accessed)
        assert judge_busy(same, Work(NOW, "x"), NOW, 10 * HOUR) == Busy("x", before.since, NOW)


def test_work_is_shown_while_it_is_the_reason_to_stay_awake() -> None:
    busy = Busy("training", NOW - HOUR, NOW)
    assert shown_busy(replace(_RUNS, busy=busy, last_access_at=None)) == busy
    assert shown_busy(replace(_RUNS, busy=busy, last_access_at=NOW)) == busy
    assert shown_busy(replace(_RUNS, busy=busy, last_access_at=NOW + MINUTE)) is None
    assert shown_busy(replace(_RUNS, busy=busy, last_access_at=None, phase=Phase.STANDBY)) is None
    assert shown_busy(replace(_RUNS, busy=None)) is None


# idle time


def _extended(coverage: ActivityCoverage, now: datetime, *, unbroken: bool = True) -> ActivityCoverage:
    lag = timedelta(seconds=30)
    return extend_coverage(coverage, now, unbroken=unbroken, longest_gap=2 * MINUTE, lag=lag, keep=HOUR)


def test_activity_that_may_have_been_missed_is_a_gap() -> None:
    lag = timedelta(seconds=30)
    # The first tick: activity of before may still be in transit.
    first = _extended(ActivityCoverage(), NOW)
    assert first == ActivityCoverage(NOW, (Span(NOW, NOW + lag),))
    # An ordinary tick leaves no gap, also when it comes as late as it may.
    assert _extended(first, NOW + 2 * MINUTE).gaps == first.gaps
    late = NOW + 2 * MINUTE + timedelta(seconds=1)
    assert _extended(first, late).gaps == (Span(NOW, late + lag),)
    later = NOW + 10 * MINUTE
    seen = ActivityCoverage(later, first.gaps)
    broken = _extended(seen, later + MINUTE, unbroken=False)
    assert broken.gaps == (*first.gaps, Span(later, later + MINUTE + lag))


def test_gaps_that_touch_become_one_and_old_ones_are_dropped() -> None:
    seen = ActivityCoverage(NOW, (Span(NOW - MINUTE, NOW + MINUTE),))
    lag = timedelta(seconds=30)
    assert _extended(seen, NOW + MINUTE, unbroken=False).gaps == (Span(NOW - MINUTE, NOW + MINUTE + lag),)
    touching = ActivityCoverage(NOW, (Span(NOW - MINUTE, NOW),))
    assert _extended(touching, NOW + MINUTE, unbroken=False).gaps == (Span(NOW - MINUTE, NOW + MINUTE + lag),)
    old = ActivityCoverage(NOW, (Span(NOW - 3 * HOUR, NOW - HOUR), Span(NOW - HOUR, NOW - HOUR + MINUTE)))
    assert _extended(old, NOW).gaps == (Span(NOW - HOUR, NOW - HOUR + MINUTE),)


def test_when_there_are_too_many_gaps_the_oldest_are_merged() -> None:
    """Time between them then counts as a gap too: a workspace sleeps later, never earlier."""
    gaps = tuple(Span(NOW + n * MINUTE, NOW + n * MINUTE + timedelta(seconds=1)) for n in range(50))
    more = _extended(ActivityCoverage(NOW + 55 * MINUTE, gaps), NOW + 56 * MINUTE, unbroken=False)
    assert len(more.gaps) == 50
    assert more.gaps[0] == Span(gaps[0].begin, gaps[1].end)
    assert more.gaps[1:49] == gaps[2:]


def test_only_the_part_of_a_gap_inside_the_time_counts() -> None:
    span = (Span(NOW, NOW + HOUR),)
    assert gap_time(span, NOW - HOUR, NOW + 2 * HOUR) == HOUR
    assert gap_time(span, NOW + 20 * MINUTE, NOW + 30 * MINUTE) == 10 * MINUTE
    assert gap_time(span, NOW + HOUR, NOW + 2 * HOUR) == timedelta()
    assert gap_time(span, NOW - HOUR, NOW) == timedelta()
    assert gap_time((*span, Span(NOW + 2 * HOUR, NOW + 3 * HOUR)), NOW, NOW + 3 * HOUR) == 2 * HOUR


def test_idle_time_begins_with_the_last_access_or_start_whichever_is_later() -> None:
    row = replace(_RUNS, phase_changed_at=NOW, last_access_at=None)
    assert idle_since(row) == NOW
    assert idle_since(replace(row, last_access_at=NOW - HOUR)) == NOW
    assert idle_since(replace(row, last_access_at=NOW + HOUR)) == NOW + HOUR


def test_a_template_may_have_its_own_ttl() -> None:
    own = replace(_RUNS, template=replace(_TEMPLATE, ttl_standby=2 * MINUTE, ttl_archive=3 * HOUR))
    assert (standby_ttl(own, HOUR), archive_ttl(own, HOUR)) == (2 * MINUTE, 3 * HOUR)
    for row in (_RUNS, replace(_RUNS, template=None)):
        assert (standby_ttl(row, HOUR), archive_ttl(row, HOUR)) == (HOUR, HOUR)
    assert shortest_standby_ttl(HOUR) == MINUTE
    assert shortest_standby_ttl(timedelta(seconds=5)) == timedelta(seconds=5)


def test_a_workspace_that_is_kept_awake_sleeps_no_earlier() -> None:
    idle = replace(_RUNS, phase_changed_at=NOW, last_access_at=NOW)
    assert sleeps_at(idle, HOUR, ()) == NOW + HOUR
    assert sleeps_at(replace(idle, keep_awake_until=NOW + 5 * HOUR), HOUR, ()) == NOW + 5 * HOUR
    assert sleeps_at(replace(idle, keep_awake_until=NOW), HOUR, ()) == NOW + HOUR
    assert not is_to_sleep(idle, NOW + HOUR, HOUR, ())
    assert is_to_sleep(idle, NOW + HOUR + timedelta(seconds=1), HOUR, ())


def test_a_gap_that_begins_when_the_workspace_would_sleep_still_counts() -> None:
    idle = replace(_RUNS, phase_changed_at=NOW, last_access_at=NOW)
    assert sleeps_at(idle, HOUR, (Span(NOW + HOUR, NOW + 2 * HOUR),)) == NOW + 2 * HOUR
    assert sleeps_at(idle, HOUR, (Span(NOW + HOUR + MINUTE, NOW + 2 * HOUR),)) == NOW + HOUR
    assert sleeps_at(idle, HOUR, (Span(NOW - HOUR, NOW),)) == NOW + HOUR


def test_a_row_of_a_newer_version_is_left_alone() -> None:
    assert sleeps_at(replace(_RUNS, of_newer_version=True), HOUR, ()) is None


# how full a home is


@pytest.mark.parametrize(
    ("used", "limit", "level"),
    [
        (None, 100, None),
        (50, None, None),
        (0, 100, DiskLevel.OK),
        (89, 100, DiskLevel.OK),
        (90, 100, DiskLevel.NEAR),
        (100, 100, DiskLevel.NEAR),
        (101, 100, DiskLevel.OVER),
    ],
)
def test_people_are_warned_from_90_percent_on(used: int | None, limit: int | None, level: DiskLevel | None) -> None:
    assert disk_level(used, limit) is level


def test_only_a_home_that_is_there_has_a_size() -> None:
    sized = replace(_RUNS, template=replace(_TEMPLATE, size=Size(disk_bytes=5)), disk_bytes=3)
    assert (disk_limit(sized), disk_used(sized)) == (5, None)
    assert disk_used(replace(sized, home_ctx=HomeCtx("inc-1"))) == 3
    assert disk_limit(replace(sized, template=None)) is None


def test_a_home_is_measured_when_its_files_may_have_changed() -> None:
    row = replace(_RUNS, home_ctx=HomeCtx("inc-1"), phase_changed_at=NOW - 9 * HOUR, disk_checked_at=NOW - HOUR)
    assert is_to_measure(row, NOW, HOUR)
    assert is_to_measure(replace(row, disk_checked_at=None), NOW, HOUR)
    assert not is_to_measure(row, NOW - timedelta(seconds=1), HOUR)
    asleep = replace(row, phase=Phase.STANDBY)
    assert not is_to_measure(asleep, NOW, HOUR), "nothing ran since"
    assert is_to_measure(replace(asleep, phase_changed_at=NOW - HOUR), NOW, HOUR)
    for changes in (
        {"home_ctx": None},
        {"deleted_at": NOW},
        {"operation": Operation.STOPPING},
        {"phase": Phase.ERROR},
        {"phase": Phase.ARCHIVED},
    ):
        assert not is_to_measure(replace(row, **changes, disk_checked_at=None), NOW, HOUR), changes


@pytest.mark.parametrize("name", ["of.ours", "a/b/c/UTC", "x" * 33])
def test_only_names_of_time_zones_become_paths(name: str, tmp_path: Path) -> None:
    file = tmp_path / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(_a_zone())
    zoneinfo.reset_tzpath([str(tmp_path)])
    try:
        assert zoneinfo.ZoneInfo(name)
        with pytest.raises(Invalid, match="is not a time zone"):
            time_zone(name)
    finally:
        zoneinfo.reset_tzpath()


def _a_zone() -> bytes:
    """A file of the zone database that says nothing but UTC, version 1."""
    counts = (0, 0, 0, 0, 1, 4)  # of UT indicators, standard indicators, leap seconds, transitions, types, characters
    return b"TZif" + bytes(16) + struct.pack(">6l", *counts) + struct.pack(">lbb", 0, 0, 0) + b"UTC\0"
