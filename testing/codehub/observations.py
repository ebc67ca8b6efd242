"""Rows and observations that the tests of the control loop's rules share."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

from codehub.domain.gc import archive_key_of
from codehub.domain.model import (
    DesiredState,
    ErrorReason,
    HomeCtx,
    Operation,
    Phase,
    Workspace,
)
from codehub.domain.observed import (
    InstanceSeen,
    Observed,
    VolumeSeen,
    VolumeState,
)
from codehub.domain.plan import Decision, decide, observe
from testing.codehub.workspaces import NOW, WORKSPACE_ID, workspace

KEY = archive_key_of(WORKSPACE_ID, "op-1")
CTX = HomeCtx("inc-1")
SECOND = timedelta(seconds=1)
COMPLETE, ABSENT, PARTIAL = (
    VolumeSeen(VolumeState.COMPLETE, CTX),
    VolumeSeen(VolumeState.ABSENT),
    VolumeSeen(VolumeState.INCOMPLETE),
)
GONE, STOPPED = InstanceSeen(exists=False), InstanceSeen(exists=True)
STARTS = InstanceSeen(exists=True, running=True)
RUNS = InstanceSeen(exists=True, running=True, healthy=True)
SICK = InstanceSeen(exists=True, running=True, healthy=False, detail="exit 1")

ASLEEP = replace(workspace(desired=DesiredState.STANDBY), phase=Phase.STANDBY, home_ctx=CTX)
RUNNING = replace(ASLEEP, phase=Phase.RUNNING, desired_state=DesiredState.RUNNING)
ARCHIVED = replace(ASLEEP, phase=Phase.ARCHIVED, desired_state=DesiredState.ARCHIVED, home_ctx=None, archive_key=KEY)


def step(row: Workspace, volume: VolumeSeen | None, archive: bool | None, instance: InstanceSeen | None) -> Decision:
    """Return the decision after this observation."""
    return decide(observe(row, Observed(volume, archive, instance), NOW), NOW, was=row.phase)


def under_way(operation: Operation, row: Workspace = ASLEEP, **changes: Any) -> Workspace:
    return replace(row, operation=operation, op_started_at=NOW, archive_op_id="op-2", **changes)


LOST = replace(ASLEEP, phase=Phase.ERROR, error_reason=ErrorReason.DATA_LOST)
