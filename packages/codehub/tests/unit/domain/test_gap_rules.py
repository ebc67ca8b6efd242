"""When two reads of the activity store are so far apart that activity may have been missed."""

from __future__ import annotations

from datetime import timedelta

from codehub.domain.ttl import ActivityCoverage, extend_coverage, longest_gap
from testing.codehub.workspaces import NOW

S = timedelta(seconds=1)


def test_a_read_may_be_two_intervals_and_a_flush_late() -> None:
    assert longest_gap(60 * S, 30 * S, 0 * S) == 150 * S


def test_with_a_short_interval_a_slow_machine_is_not_taken_for_a_gap() -> None:
    assert longest_gap(1 * S, 1 * S, 0 * S) == 30 * S
    assert longest_gap(14 * S, 3 * S, 0 * S) == 31 * S


def test_a_tick_that_waited_for_workspaces_that_do_not_answer_makes_no_gap() -> None:
    assert longest_gap(60 * S, 30 * S, 300 * S) == 450 * S
    seen = ActivityCoverage(NOW)
    for last_tick, gaps in ((300 * S, 0), (0 * S, 1)):
        longest = longest_gap(60 * S, 30 * S, last_tick)
        late = extend_coverage(seen, NOW + 360 * S, unbroken=True, longest_gap=longest, lag=30 * S, keep=86_400 * S)
        assert len(late.gaps) == gaps
