"""What `WorkspaceAdmin.transfer` writes into a row."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from datetime import datetime
from typing import Final

from codehub.domain.actions import NEEDS_ADMIN, may_have_instance, stop_target
from codehub.domain.model import DesiredState, Phase, Workspace
from testing.codehub.simulation.world import recovered

OWNERS: Final = ("ada", "bob", "eve")


def transferred(row: Workspace, owner: str, now: datetime, *, bugs: Collection[str]) -> Workspace | None:
    """Return the row after an administrator asked to transfer it: one that may run is only stopped. None: refused."""
    if row.desired_state is DesiredState.DELETED or row.deleted_at is not None or row.owner_user_id == owner:
        return None
    if may_have_instance(row) and "transfer-while-running" not in bugs:
        if row.desired_state is not DesiredState.RUNNING and row.phase is not Phase.ERROR:
            return None
        if row.error_reason in NEEDS_ADMIN:
            return replace(row, desired_state=stop_target(row), updated_at=now)
        return recovered(row, now, stop_target(row))
    desired = DesiredState.STANDBY if row.desired_state is DesiredState.RUNNING else row.desired_state
    return replace(row, owner_user_id=owner, desired_state=desired, updated_at=now)
