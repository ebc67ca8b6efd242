"""The disk size of a workspace: when it is measured, and when people are warned."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codehub.domain.disk import DiskLevel, disk_level, disk_used, is_to_measure, pause_after
from codehub.domain.model import ErrorReason, HomeCtx, Operation, Phase, Workspace
from codehub.domain.wording import disk_warning
from testing.codehub.workspaces import NOW, workspace, workspaces

amounts = st.integers(0, 1 << 50)
limits = st.integers(16 << 20, 1 << 50)
EVERY = timedelta(minutes=10)
HOME = replace(workspace(), home_ctx=HomeCtx("inc-1"))


@given(amounts, amounts, limits)
def test_the_level_never_falls_while_the_use_grows(one: int, other: int, limit: int) -> None:
    order = [DiskLevel.OK, DiskLevel.NEAR, DiskLevel.OVER]
    levels = [disk_level(used, limit) for used in sorted((one, other))]
    assert [level for level in levels if level is None] == []
    ranks = [order.index(level) for level in levels if level is not None]
    assert ranks == sorted(ranks)


@given(amounts, limits)
def test_over_is_more_than_the_limit_and_near_is_nine_tenths_of_it(used: int, limit: int) -> None:
    level = disk_level(used, limit)
    assert (level is DiskLevel.OVER) == (used > limit)
    assert (level is DiskLevel.OK) == (10 * used < 9 * limit)
    assert bool(disk_warning(used, limit)) == (level is not DiskLevel.OK)


@given(st.none() | amounts, st.none() | limits)
def test_nobody_is_warned_of_what_is_unknown(used: int | None, limit: int | None) -> None:
    if used is None or limit is None:
        assert disk_level(used, limit) is None
        assert disk_warning(used, limit) == ""


@pytest.mark.parametrize(
    ("used", "warning"),
    [
        (8_999_999_999, ""),
        (9 * 10**9, "Its files use 9.0 GB, almost all of its disk size of 10.0 GB."),
        (10**10, "Its files use 10.0 GB, almost all of its disk size of 10.0 GB."),
        (
            11 * 10**9,
            "Its files use 11.0 GB, more than its disk size of 10.0 GB. Delete files that you do not need.",
        ),
    ],
)
def test_the_warning_names_both_sizes(used: int, warning: str) -> None:
    assert disk_warning(used, 10**10) == warning


@given(workspaces(), st.none() | st.integers(-7200, 0))
def test_only_a_home_at_rest_or_in_use_is_measured_and_not_too_often(row: Workspace, checked_s: int | None) -> None:
    checked = None if checked_s is None else NOW + timedelta(seconds=checked_s)
    row = replace(row, disk_checked_at=checked)
    if is_to_measure(row, NOW, EVERY):
        assert row.home_ctx is not None
        assert row.deleted_at is None
        assert row.operation is Operation.NONE
        assert checked is None or NOW - checked >= EVERY
        measured = replace(row, disk_checked_at=NOW)
        assert not is_to_measure(measured, NOW + EVERY / 2, EVERY)


@pytest.mark.parametrize(
    ("phase", "changed_min", "checked_min", "expected"),
    [
        (Phase.RUNNING, 60, None, True),
        (Phase.RUNNING, 60, 10, True),
        (Phase.RUNNING, 60, 9, False),
        (Phase.STANDBY, 20, 30, True),
        (Phase.STANDBY, 5, 9, False),
        (Phase.STANDBY, 60, 30, False),
        (Phase.STANDBY, 60, None, True),
        (Phase.ARCHIVED, 60, None, False),
        (Phase.ERROR, 60, None, False),
    ],
)
def test_when_a_home_is_measured(phase: Phase, changed_min: int, checked_min: int | None, expected: bool) -> None:
    checked = None if checked_min is None else NOW - timedelta(minutes=checked_min)
    changed = NOW - timedelta(minutes=changed_min)
    row = replace(HOME, phase=phase, phase_changed_at=changed, disk_checked_at=checked)
    assert is_to_measure(row, NOW, EVERY) is expected


def test_an_archived_workspace_uses_no_disk() -> None:
    assert disk_used(replace(HOME, disk_bytes=5)) == 5
    assert disk_used(replace(HOME, disk_bytes=5, home_ctx=None)) is None


def test_the_size_of_a_lost_home_is_unknown() -> None:
    assert disk_used(replace(HOME, disk_bytes=5, error_reason=ErrorReason.DATA_LOST)) is None
    assert disk_used(replace(HOME, disk_bytes=5, error_reason=ErrorReason.RETRY_EXCEEDED)) == 5


@pytest.mark.parametrize(("took_s", "pause_s"), [(0, 60), (1, 60), (1.2, 60), (2, 100), (12, 600), (120, 600)])
def test_a_home_is_left_alone_for_50_times_as_long_as_it_took_within_bounds(took_s: float, pause_s: float) -> None:
    shortest, longest = timedelta(minutes=1), timedelta(minutes=10)
    assert pause_after(timedelta(seconds=took_s), shortest, longest) == timedelta(seconds=pause_s)
