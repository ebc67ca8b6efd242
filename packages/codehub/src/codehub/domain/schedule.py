"""When a workspace starts by itself: at a time of day in its owner's time zone, on some days of the week. Pure.

Everybody's nine o'clock is the same minute, so each workspace starts a little earlier by a share of the jitter that its id
decides: always the same one, so that it does not move from day to day.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from codehub.domain.errors import Invalid

_TIME = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)")
_DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_GROUPS = {"weekdays": range(5), "weekends": range(5, 7), "daily": range(7)}


@dataclass(frozen=True, slots=True)
class Schedule:
    """`days` holds Monday as 0. `jitter` is how much earlier than `at` a start may be."""

    at: time
    days: frozenset[int]
    jitter: timedelta = timedelta(minutes=10)


def parse_schedule(start: str, days: str = "weekdays", jitter: timedelta = timedelta(minutes=10)) -> Schedule:
    found = _TIME.fullmatch(start)
    if found is None:
        raise Invalid(f"{start!r} is not a time of day: write 9:00")
    if not timedelta() <= jitter <= timedelta(hours=2):
        raise Invalid("the jitter of a schedule is between 0m and 2h")
    return Schedule(time(int(found[1]), int(found[2])), _parse_days(days), jitter)


def _parse_days(text: str) -> frozenset[int]:
    if text in _GROUPS:
        return frozenset(_GROUPS[text])
    names = [name.strip().lower() for name in text.split(",")]
    if not all(name in _DAYS for name in names):
        raise Invalid(f"{text!r} names no days: write weekdays, weekends, daily, or a list such as mon,wed,fri")
    return frozenset(_DAYS.index(name) for name in names)


def time_zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise Invalid(f"{name!r} is not a time zone: write one such as Europe/Berlin or UTC") from error


def next_start(schedule: Schedule, workspace_id: str, zone: ZoneInfo, after: datetime) -> datetime:
    """The first start later than `after`, in UTC.

    Around a change of the clock: a time of day that is skipped counts as if it were not, and one that comes twice is taken
    at its first.
    """
    early = schedule.jitter * _share(workspace_id)
    day = after.astimezone(zone).date() - timedelta(days=1)
    # The jitter reaches back by less than a day, and every schedule has a day within a week.
    for offset in range(10):
        date = day + timedelta(days=offset)
        if date.weekday() not in schedule.days:
            continue
        local = datetime.combine(date, schedule.at, tzinfo=zone)
        start = local.astimezone(UTC) - early
        if start > after:
            return start
    raise AssertionError("a schedule has at least one day")


def _share(workspace_id: str) -> float:
    """In [0, 1), by the id alone."""
    digest = hashlib.sha256(workspace_id.encode()).digest()
    return int.from_bytes(digest[:4], "big") / (1 << 32)
