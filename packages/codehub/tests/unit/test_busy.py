"""What keeps a workspace awake while nobody is there, and for how long."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from codehub.domain.busy import Work, judge_busy, shown_busy
from codehub.domain.model import Busy, Phase
from testing.codehub.workspaces import NOW, workspace

MAX = timedelta(hours=12)
WORK = Work(NOW, "make")


def test_work_keeps_it_awake_from_when_it_was_first_found() -> None:
    row = workspace()
    first = judge_busy(row, WORK, NOW, MAX)
    assert first == Busy("make", NOW, NOW)
    later = NOW + timedelta(minutes=10)
    row = replace(row, busy=first, last_access_at=NOW)
    assert judge_busy(row, Work(later, "make"), later, MAX) == Busy("make", NOW, later)


def test_no_work_lets_it_sleep() -> None:
    assert judge_busy(replace(workspace(), busy=Busy("make", NOW, NOW)), None, NOW, MAX) is None


def test_a_person_who_comes_in_begins_it_again() -> None:
    row = replace(workspace(), busy=Busy("make", NOW - MAX, NOW - timedelta(hours=1)), last_access_at=NOW)
    assert judge_busy(row, WORK, NOW, MAX) == Busy("make", NOW, NOW)
    assert shown_busy(replace(row, phase=Phase.RUNNING)) is None


@given(st.lists(st.integers(1, 120), min_size=1, max_size=100))
def test_work_that_never_ends_keeps_it_awake_for_the_longest_time_at_most(gaps: list[int]) -> None:
    row, now, first = workspace(), NOW, None
    for minutes in gaps:
        busy = judge_busy(row, Work(now, "loop"), now, MAX)
        if busy is None:
            assert first is not None
            assert now - first > MAX
            return
        first = first or now
        assert now - first <= MAX
        row = replace(row, busy=busy, last_access_at=now)
        now += timedelta(minutes=minutes)
