"""Scheduled starts and stops: at a time of day in the owner's time zone, on some days of the week. Pure.

To avoid starting all workspaces in the same minute, each one starts earlier by a fraction of the jitter. The fraction is
derived from its id, so that the time does not change from day to day. A stop is later by that fraction instead.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from enum import StrEnum
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from codehub.domain.errors import Invalid

_TIME = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)")
_DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_GROUPS = {"weekdays": range(5), "weekends": range(5, 7), "daily": range(7)}
_ZONE = re.compile(r"[A-Za-z0-9_+-]{1,32}(/[A-Za-z0-9_+-]{1,32}){0,2}")
_DEFAULT_JITTER = timedelta(minutes=10)


class Moment(StrEnum):
    START = "start"
    STOP = "stop"


@dataclass(frozen=True, slots=True)
class Schedule:
    """`days` holds Monday as 0. `jitter` is how much earlier than `at` a start may happen."""

    at: time
    days: frozenset[int]
    jitter: timedelta = _DEFAULT_JITTER
    stop: time | None = None


def parse_schedule(
    start: str, days: str = "weekdays", jitter: timedelta = _DEFAULT_JITTER, stop: str = ""
) -> Schedule:
    at, until = _time_of_day(start), _time_of_day(stop) if stop else None
    if not timedelta() <= jitter <= timedelta(hours=2):
        raise Invalid("the jitter of a schedule is between 0m and 2h")
    if until is not None and until <= at:
        raise Invalid("the stop of a schedule is later on the same day than its start")
    return Schedule(at, _parse_days(days), jitter, until)


def _time_of_day(text: str) -> time:
    found = _TIME.fullmatch(text)
    if found is None:
        raise Invalid(f"{text!r} is not a time of day: write 9:00")
    return time(int(found[1]), int(found[2]))


def _parse_days(text: str) -> frozenset[int]:
    if text in _GROUPS:
        return frozenset(_GROUPS[text])
    names = [name.strip().lower() for name in text.split(",")]
    if not all(name in _DAYS for name in names):
        raise Invalid(f"{text!r} names no days: write weekdays, weekends, daily, or a list such as mon,wed,fri")
    return frozenset(_DAYS.index(name) for name in names)


def shown_days(days: frozenset[int]) -> str:
    """Format days as `_parse_days` reads them."""
    for name, group in _GROUPS.items():
        if days == frozenset(group):
            return name
    return ",".join(_DAYS[day] for day in sorted(days))


def shown_schedule(schedule: Schedule) -> str:
    until = f" to {schedule.stop:%H:%M}" if schedule.stop is not None else ""
    return f"{schedule.at:%H:%M}{until} {shown_days(schedule.days)}"


def time_zone(name: str) -> ZoneInfo:
    # The name becomes a path in the zone database, so only valid zone names may pass.
    if not _ZONE.fullmatch(name):
        raise Invalid(f"{name!r} is not a time zone: write one such as Europe/Berlin or UTC")
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise Invalid(f"{name!r} is not a time zone: write one such as Europe/Berlin or UTC") from error


def next_start(schedule: Schedule, workspace_id: str, zone: ZoneInfo, after: datetime) -> datetime:
    """Return the first start later than `after`, in UTC.

    Around a clock change, a skipped time of day counts as if it were not skipped, and a repeated one counts at its first
    occurrence.
    """
    early = schedule.jitter * _share(workspace_id)
    return _next(schedule, schedule.at, -early, zone, after)


def next_stop(schedule: Schedule, workspace_id: str, zone: ZoneInfo, after: datetime) -> datetime | None:
    if schedule.stop is None:
        return None
    return _next(schedule, schedule.stop, schedule.jitter * _share(workspace_id), zone, after)


def due_moment(
    schedule: Schedule, workspace_id: str, zone: ZoneInfo, since: datetime, now: datetime
) -> Moment | None:
    """Return the last scheduled event in (since, now], or None if nothing was due."""
    found: list[tuple[datetime, Moment]] = []
    start = next_start(schedule, workspace_id, zone, since)
    while start <= now:
        found.append((start, Moment.START))
        start = next_start(schedule, workspace_id, zone, start)
    stop = next_stop(schedule, workspace_id, zone, since)
    while stop is not None and stop <= now:
        found.append((stop, Moment.STOP))
        stop = next_stop(schedule, workspace_id, zone, stop)
    return max(found)[1] if found else None


def _next(schedule: Schedule, at: time, shift: timedelta, zone: ZoneInfo, after: datetime) -> datetime:
    day = after.astimezone(zone).date() - timedelta(days=1)
    # The shift is less than a day, and every schedule has a day within a week.
    for offset in range(10):
        date = day + timedelta(days=offset)
        if date.weekday() not in schedule.days:
            continue
        moment = datetime.combine(date, at, tzinfo=zone).astimezone(UTC) + shift
        if moment > after:
            return moment
    raise AssertionError("a schedule has at least one day")


def _share(workspace_id: str) -> float:
    """Return a fraction in [0, 1) derived from the id alone."""
    digest = hashlib.sha256(workspace_id.encode()).digest()
    return int.from_bytes(digest[:4], "big") / (1 << 32)
