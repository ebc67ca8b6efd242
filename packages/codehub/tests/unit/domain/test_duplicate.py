"""When a workspace's files may be copied, and from where."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codehub.domain.duplicate import FromArchive, FromHome, NotNow, source_of
from codehub.domain.gc import archive_key_of
from codehub.domain.model import DesiredState, ErrorReason, HomeCtx, Operation, Phase, Workspace
from testing.codehub.workspaces import NOW, WORKSPACE_ID, workspace, workspaces

_KEY = archive_key_of(WORKSPACE_ID, "op-1")
_ASLEEP = replace(
    workspace(desired=DesiredState.STANDBY), phase=Phase.STANDBY, home_ctx=HomeCtx("inc-1"), last_access_at=NOW
)
_ARCHIVED = replace(workspace(desired=DesiredState.ARCHIVED), phase=Phase.ARCHIVED, archive_key=_KEY)


def test_a_sleeping_workspace_is_copied_from_its_home_and_an_archived_one_from_its_archive() -> None:
    home = source_of(_ASLEEP)
    assert isinstance(home, FromHome)
    assert home.ctx == HomeCtx("inc-1")
    assert source_of(_ARCHIVED) == FromArchive(_KEY)


def test_a_sleeping_workspace_with_an_older_archive_is_copied_from_its_newer_home() -> None:
    assert isinstance(source_of(replace(_ASLEEP, archive_key=_KEY)), FromHome)
    # About to be archived, and asleep until then.
    assert isinstance(source_of(replace(_ASLEEP, desired_state=DesiredState.ARCHIVED)), FromHome)


@pytest.mark.parametrize(
    ("row", "why"),
    [
        (replace(_ASLEEP, deleted_at=NOW), "deleted"),
        (replace(_ASLEEP, desired_state=DesiredState.DELETED), "deleted"),
        (replace(_ASLEEP, phase=Phase.ERROR), "ERROR"),
        (replace(_ASLEEP, error_reason=ErrorReason.TIMEOUT), "ERROR"),
        (replace(_ASLEEP, desired_state=DesiredState.RUNNING), "running"),
        (replace(_ASLEEP, phase=Phase.RUNNING), "running"),
        (replace(_ASLEEP, operation=Operation.ARCHIVING), "busy"),
        (replace(_ASLEEP, phase=Phase.PENDING, home_ctx=None), "no files"),
        (replace(_ASLEEP, phase=Phase.PENDING), "no files"),
        (replace(_ASLEEP, home_ctx=None), "no files"),
        (replace(_ARCHIVED, archive_key=None), "no files"),
        (replace(_ARCHIVED, home_ctx=HomeCtx("inc-1")), "no files"),
    ],
)
def test_what_cannot_be_copied_now_says_why(row: Workspace, why: str) -> None:
    found = source_of(row)
    assert isinstance(found, NotNow)
    assert why in found.why


@given(workspaces())
def test_only_files_that_nothing_writes_to_are_copied(row: Workspace) -> None:
    if not isinstance(source_of(row), NotNow):
        assert row.phase in (Phase.STANDBY, Phase.ARCHIVED)
        assert row.operation is Operation.NONE
        assert row.desired_state in (DesiredState.STANDBY, DesiredState.ARCHIVED)


def _stamp(accessed: datetime | None, changed: datetime) -> str:
    found = source_of(replace(_ASLEEP, last_access_at=accessed, phase_changed_at=changed))
    assert isinstance(found, FromHome)
    return found.stamp


@given(st.integers(1, 10**9), st.integers(0, 10**9))
def test_a_start_in_between_changes_the_stamp_however_short_it_was(micros: int, older: int) -> None:
    """A requested start is an access, and a phase change records its time."""
    later, before = NOW + timedelta(microseconds=micros), NOW - timedelta(microseconds=older)
    assert _stamp(NOW, before) == _stamp(None, NOW)
    assert len({_stamp(NOW, before), _stamp(later, before), _stamp(later + timedelta(microseconds=1), NOW)}) == 3
    assert _stamp(later, NOW) == _stamp(NOW, later)
