"""Status, limits, TTL and GC protection: every row of each rule."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codehub.domain.errors import LimitExceeded
from codehub.domain.gc import Claim, archive_key_of, is_protected
from codehub.domain.limits import RunningLimits, check_running_limits
from codehub.domain.model import DesiredState, Operation, Phase, Status, Workspace
from codehub.domain.status import status_of
from codehub.domain.ttl import (
    ActivityCoverage,
    Span,
    archives_at,
    extend_coverage,
    gap_time,
    idle_since,
    is_to_archive,
    is_to_sleep,
    sleeps_at,
)
from testing.codehub.workspaces import NOW, workspace, workspaces

ROW = workspace()
RUN, SLEEP = DesiredState.RUNNING, DesiredState.STANDBY


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        (replace(ROW, deleted_at=NOW, desired_state=DesiredState.DELETED), Status.DELETED),
        (replace(ROW, desired_state=DesiredState.DELETED, phase=Phase.ERROR), Status.DELETING),
        (replace(ROW, phase=Phase.ERROR), Status.ERROR),
        (replace(ROW, desired_state=RUN, phase=Phase.RUNNING), Status.RUNNING),
        (replace(ROW, desired_state=RUN, phase=Phase.STANDBY), Status.PROVISIONING),
        (replace(ROW, desired_state=SLEEP, phase=Phase.RUNNING, last_access_at=NOW), Status.STOPPING),
        (
            replace(ROW, desired_state=SLEEP, phase=Phase.STANDBY, operation=Operation.STOPPING, last_access_at=NOW),
            Status.STOPPING,
        ),
        (replace(ROW, desired_state=SLEEP, phase=Phase.STANDBY), Status.CREATED),
        (replace(ROW, desired_state=SLEEP, phase=Phase.STANDBY, last_access_at=NOW), Status.STOPPED),
        (replace(ROW, desired_state=DesiredState.ARCHIVED, phase=Phase.ARCHIVED), Status.CREATED),
    ],
)
def test_status_follows_the_rule_in_its_order(row: Workspace, expected: Status) -> None:
    assert status_of(row) is expected


@given(workspaces())
def test_every_workspace_has_a_status(row: Workspace) -> None:
    assert isinstance(status_of(row), Status)


@given(st.integers(0, 5), st.integers(0, 5), st.integers(0, 6), st.integers(0, 6))
def test_the_limit_lets_exactly_as_many_run_as_may(per_user: int, in_all: int, mine: int, others: int) -> None:
    def check() -> None:
        check_running_limits(RunningLimits(per_user, in_all), others_of_user=mine, others_in_all=mine + others)

    if mine + 1 <= per_user and mine + others + 1 <= in_all:
        check()
    else:
        with pytest.raises(LimitExceeded):
            check()


TTL = timedelta(seconds=600)


def _running(**changes: object) -> Workspace:
    row = replace(ROW, phase=Phase.RUNNING, phase_changed_at=NOW - 2 * TTL, last_access_at=NOW - 2 * TTL)
    return replace(row, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("row", "sleeps"),
    [
        (_running(), True),
        (_running(last_access_at=None), True),
        (_running(last_access_at=NOW - TTL), False),
        (_running(last_access_at=NOW), False),
        (_running(phase_changed_at=NOW), False),
        (_running(desired_state=SLEEP), False),
        (_running(operation=Operation.STOPPING), False),
        (_running(phase=Phase.STANDBY), False),
        (_running(deleted_at=NOW), False),
    ],
)
def test_only_an_idle_running_workspace_at_rest_is_put_to_sleep(row: Workspace, sleeps: bool) -> None:
    assert is_to_sleep(row, NOW, TTL, ()) is sleeps


def test_blind_time_does_not_count_as_idle() -> None:
    gaps = (Span(NOW - TTL * 1.5, NOW - TTL * 0.4),)
    assert not is_to_sleep(_running(), NOW, TTL, gaps)
    assert is_to_sleep(_running(), NOW + TTL * 0.2, TTL, gaps)


@given(st.lists(st.integers(0, 1200), max_size=12, unique=True), st.integers(-1200, 2400), st.integers(-1300, 100))
def test_sleeps_at_is_when_the_idle_time_outside_gaps_reaches_the_ttl(
    edges: list[int], later: int, accessed: int
) -> None:
    moments = [NOW + timedelta(seconds=second - 900) for second in sorted(edges)]
    gaps = tuple(Span(begin, end) for begin, end in zip(moments[::2], moments[1::2], strict=False))
    row = _running(last_access_at=NOW + timedelta(seconds=accessed))
    now, since = NOW + timedelta(seconds=later), idle_since(row)
    idle = now - since - gap_time(gaps, since, now) if now > since else timedelta()
    at = sleeps_at(row, TTL, gaps)
    assert at is not None
    assert (now > at) is (idle > TTL)


def test_what_does_not_rest_neither_sleeps_nor_is_archived() -> None:
    assert sleeps_at(_running(operation=Operation.STOPPING), TTL, ()) is None
    assert archives_at(_running(), TTL) is None
    asleep = _running(phase=Phase.STANDBY, desired_state=SLEEP)
    assert archives_at(asleep, TTL) == asleep.phase_changed_at + TTL


@pytest.mark.parametrize(
    ("changes", "archives"),
    [
        ({}, True),
        ({"phase_changed_at": NOW - TTL}, False),
        ({"desired_state": RUN}, False),
        ({"operation": Operation.STARTING}, False),
        ({"phase": Phase.RUNNING}, False),
    ],
)
def test_only_a_workspace_long_asleep_at_rest_is_archived(changes: dict[str, object], archives: bool) -> None:
    row = replace(ROW, phase=Phase.STANDBY, desired_state=SLEEP, phase_changed_at=NOW - 2 * TTL)
    assert is_to_archive(replace(row, **changes), NOW, TTL) is archives  # type: ignore[arg-type]


@given(st.lists(st.tuples(st.integers(1, 400), st.booleans()), max_size=150))
def test_blind_spans_never_overlap_and_never_count_more_than_the_time(gaps: list[tuple[int, bool]]) -> None:
    coverage, now = ActivityCoverage(), NOW
    for seconds, unbroken in gaps:
        now += timedelta(seconds=seconds)
        coverage = extend_coverage(
            coverage,
            now,
            unbroken=unbroken,
            longest_gap=timedelta(seconds=150),
            lag=timedelta(seconds=30),
            keep=timedelta(hours=2),
        )
    assert len(coverage.gaps) <= 50
    ends = [NOW - timedelta(days=1), *(moment for span in coverage.gaps for moment in (span.begin, span.end))]
    assert ends == sorted(ends)
    assert gap_time(coverage.gaps, NOW, now) <= now - NOW
    assert coverage.until == (now if gaps else None)


def _claim(**changes: object) -> Claim:
    claim = Claim(ROW.id, Phase.ARCHIVED, archive_key_of(ROW.id, "key"), "under-way", frozenset({"kept-1", "kept-2"}))
    return replace(claim, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("claim", "op_id", "protected"),
    [
        (None, "any", True),
        (_claim(), "key", True),
        (_claim(), "under-way", True),
        (_claim(), "kept-1", True),
        (_claim(), "older", False),
        (_claim(phase=Phase.ERROR), "older", True),
        (_claim(phase=Phase.DELETING, error_recorded=True), "older", True),
        (_claim(phase=Phase.DELETING), "older", False),
        (_claim(phase=Phase.DELETED), "older", True),
        (_claim(phase=Phase.DELETED, purged_at=NOW), "key", False),
    ],
)
def test_an_archive_is_protected_by_each_row_of_the_rule(claim: Claim | None, op_id: str, protected: bool) -> None:
    assert is_protected(claim, op_id) is protected
