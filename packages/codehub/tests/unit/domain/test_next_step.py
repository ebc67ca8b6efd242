"""What the coordinator does next follows from what is desired, recorded and observed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from codehub.domain.gc import archive_key_of
from codehub.domain.model import (
    DesiredState,
    ErrorReason,
    HomeCtx,
    Operation,
    Workspace,
)
from codehub.domain.observed import (
    VolumeSeen,
    VolumeState,
)
from codehub.domain.plan import Begin, Cancel, CarryOn, Complete, Decision, Fail, Rest, Wait
from testing.codehub.observations import (
    ABSENT,
    ARCHIVED,
    ASLEEP,
    COMPLETE,
    GONE,
    KEY,
    PARTIAL,
    RUNNING,
    RUNS,
    SECOND,
    SICK,
    STARTS,
    STOPPED,
    step,
    under_way,
)
from testing.codehub.workspaces import NOW, WORKSPACE_ID, workspace


@pytest.mark.parametrize(
    ("row", "seen", "decision"),
    [
        # Converged.
        (ASLEEP, (COMPLETE, None, GONE), Rest()),
        (RUNNING, (COMPLETE, None, RUNS), Rest()),
        (ARCHIVED, (ABSENT, True, GONE), Rest()),
        # Up.
        (replace(ASLEEP, desired_state=DesiredState.RUNNING), (COMPLETE, None, GONE), Begin(Operation.STARTING)),
        (replace(ARCHIVED, desired_state=DesiredState.RUNNING), (ABSENT, True, GONE), Begin(Operation.RESTORING)),
        (workspace(), (ABSENT, None, GONE), Begin(Operation.PROVISIONING)),
        (workspace(desired=DesiredState.ARCHIVED), (ABSENT, None, GONE), Begin(Operation.CREATE_EMPTY_ARCHIVE)),
        (replace(workspace(), copy_of="other"), (ABSENT, None, GONE), Begin(Operation.DUPLICATING)),
        # A copy whose archive is there is restored like any other.
        (replace(workspace(), copy_of="other", archive_key=KEY), (ABSENT, True, GONE), Begin(Operation.RESTORING)),
        # Down.
        (replace(RUNNING, desired_state=DesiredState.STANDBY), (COMPLETE, None, RUNS), Begin(Operation.STOPPING)),
        (replace(RUNNING, desired_state=DesiredState.STANDBY), (COMPLETE, None, SICK), Begin(Operation.STOPPING)),
        (replace(ASLEEP, desired_state=DesiredState.ARCHIVED), (COMPLETE, None, STOPPED), Begin(Operation.ARCHIVING)),
        (replace(ASLEEP, desired_state=DesiredState.DELETED), (COMPLETE, None, GONE), Begin(Operation.ARCHIVING)),
        (replace(ARCHIVED, desired_state=DesiredState.DELETED), (ABSENT, True, GONE), Begin(Operation.DELETING)),
        (replace(workspace(desired=DesiredState.DELETED)), (ABSENT, None, GONE), Begin(Operation.DELETING)),
        # A running instance that is gone or sick is started again.
        (RUNNING, (COMPLETE, None, GONE), Begin(Operation.STARTING, again=True)),
        (RUNNING, (COMPLETE, None, SICK), Begin(Operation.STARTING, again=True)),
        # Nothing is done while something that matters is unknown.
        (RUNNING, (None, None, RUNS), Rest()),
        (RUNNING, (COMPLETE, None, None), Rest()),
        (replace(RUNNING, desired_state=DesiredState.STANDBY), (COMPLETE, None, None), Rest()),
        (replace(ARCHIVED, desired_state=DesiredState.RUNNING), (ABSENT, None, GONE), Rest()),
        (replace(ARCHIVED, desired_state=DesiredState.RUNNING), (None, True, GONE), Rest()),
        # Losses.
        (
            ASLEEP,
            (ABSENT, None, GONE),
            Fail(ErrorReason.DATA_LOST, "the home is recorded, but it is missing or incomplete"),
        ),
        (
            ASLEEP,
            (PARTIAL, None, GONE),
            Fail(ErrorReason.DATA_LOST, "the home is recorded, but it is missing or incomplete"),
        ),
        (ARCHIVED, (ABSENT, False, GONE), Fail(ErrorReason.DATA_LOST, "the archive is gone and there is no volume")),
        (
            ARCHIVED,
            (ABSENT, True, RUNS),
            Fail(ErrorReason.CONTAINER_WITHOUT_VOLUME, "an instance runs without its volume"),
        ),
        # Rows that are not to be touched.
        (replace(ASLEEP, deleted_at=NOW), (ABSENT, None, GONE), Rest()),
        (replace(ASLEEP, of_newer_version=True), (ABSENT, None, GONE), Rest()),
    ],
)
def test_the_next_step_follows_from_what_is_seen_and_desired(
    row: Workspace, seen: tuple[Any, Any, Any], decision: Decision
) -> None:
    assert step(row, *seen) == decision


_OWN_KEY = archive_key_of(WORKSPACE_ID, "op-2")


@pytest.mark.parametrize(
    ("row", "seen", "decision"),
    [
        (under_way(Operation.STARTING), (COMPLETE, None, GONE), CarryOn(Operation.STARTING)),
        (under_way(Operation.STARTING), (COMPLETE, None, STARTS), CarryOn(Operation.STARTING)),
        (under_way(Operation.STARTING), (COMPLETE, None, RUNS), Complete(Operation.STARTING)),
        (under_way(Operation.STARTING), (None, None, RUNS), Rest()),
        (under_way(Operation.STOPPING, RUNNING), (COMPLETE, None, STOPPED), Complete(Operation.STOPPING)),
        (under_way(Operation.STOPPING, RUNNING), (COMPLETE, None, SICK), CarryOn(Operation.STOPPING)),
        (under_way(Operation.STOPPING, RUNNING), (COMPLETE, None, None), Rest()),
        (under_way(Operation.ARCHIVING), (COMPLETE, None, GONE), CarryOn(Operation.ARCHIVING)),
        (under_way(Operation.ARCHIVING, archive_key=_OWN_KEY), (ABSENT, True, GONE), Complete(Operation.ARCHIVING)),
        # An older archive does not replace a volume that disappeared, and a partly removed one is not gone.
        (under_way(Operation.ARCHIVING, archive_key=KEY), (ABSENT, True, GONE), CarryOn(Operation.ARCHIVING)),
        (under_way(Operation.ARCHIVING, archive_key=_OWN_KEY), (PARTIAL, True, GONE), CarryOn(Operation.ARCHIVING)),
        (
            under_way(Operation.RESTORING, ARCHIVED),
            (VolumeSeen(VolumeState.COMPLETE, HomeCtx("inc-9", KEY)), True, GONE),
            Complete(Operation.RESTORING),
        ),
        (
            under_way(Operation.RESTORING, ARCHIVED),
            (VolumeSeen(VolumeState.COMPLETE, HomeCtx("inc-9", "other")), True, GONE),
            CarryOn(Operation.RESTORING),
        ),
        (under_way(Operation.DELETING), (ABSENT, None, GONE), Complete(Operation.DELETING)),
        (under_way(Operation.DELETING), (ABSENT, None, STOPPED), CarryOn(Operation.DELETING)),
        (under_way(Operation.DELETING), (PARTIAL, None, GONE), CarryOn(Operation.DELETING)),
        # A home that is lost in the middle of an operation that does not touch it.
        (
            under_way(Operation.STARTING),
            (ABSENT, None, GONE),
            Fail(ErrorReason.DATA_LOST, "the home is recorded, but it is missing or incomplete"),
        ),
        # Its owner cancelled it, and it is this operation that was cancelled.
        (
            under_way(Operation.STARTING, cancel_op_started_at=NOW),
            (COMPLETE, None, GONE),
            Cancel(Operation.STARTING),
        ),
        (
            under_way(Operation.STARTING, cancel_op_started_at=NOW - SECOND),
            (COMPLETE, None, GONE),
            CarryOn(Operation.STARTING),
        ),
        (
            under_way(Operation.ARCHIVING, cancel_op_started_at=NOW, archive_key=_OWN_KEY),
            (PARTIAL, True, GONE),
            CarryOn(Operation.ARCHIVING),
        ),
        # Done and cancelled at once: it is done.
        (
            under_way(Operation.STARTING, cancel_op_started_at=NOW),
            (COMPLETE, None, RUNS),
            Complete(Operation.STARTING),
        ),
        (under_way(Operation.STARTING, retry_at=NOW + SECOND), (COMPLETE, None, GONE), Wait(NOW + SECOND)),
        (under_way(Operation.STARTING, retry_at=NOW), (COMPLETE, None, GONE), CarryOn(Operation.STARTING)),
    ],
)
def test_an_operation_under_way_goes_on_until_it_is_seen_done(
    row: Workspace, seen: tuple[Any, Any, Any], decision: Decision
) -> None:
    assert step(row, *seen) == decision


def test_nothing_begins_before_the_time_of_the_retry() -> None:
    row = replace(ASLEEP, desired_state=DesiredState.RUNNING, retry_at=NOW + SECOND)
    assert step(row, COMPLETE, None, GONE) == Wait(NOW + SECOND)
    assert step(replace(row, retry_at=NOW), COMPLETE, None, GONE) == Begin(Operation.STARTING)
