"""Continuing elsewhere: creates a workspace from the last archive of one whose node does not answer. Pure."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Final

from codehub.domain.ids import time_of
from codehub.domain.model import Conditions, DesiredState, Operation, Phase, Workspace

_SUFFIX: Final = " (continued)"
_LONGEST_NAME: Final = 255


def continued(source: Workspace, new_id: str, now: datetime) -> Workspace:
    """Return a new workspace with the source's settings that starts from the source's last archive."""
    name = source.name.removesuffix(_SUFFIX)[: _LONGEST_NAME - len(_SUFFIX)]
    return replace(
        source,
        id=new_id,
        name=name + _SUFFIX,
        home_store_key=f"users/{source.owner_user_id}/workspaces/{new_id}/home",
        desired_state=DesiredState.RUNNING,
        phase=Phase.PENDING,
        conditions=Conditions(),
        operation=Operation.NONE,
        op_started_at=None,
        progress=None,
        blocked=None,
        home_ctx=None,
        archive_op_id=None,
        observed_at=None,
        error_reason=None,
        error_message=None,
        error_count=0,
        retry_at=None,
        keep_awake_until=None,
        busy=None,
        last_access_at=now,
        created_at=now,
        updated_at=now,
        phase_changed_at=now,
        copy_of=source.id,
    )


def archived_at(workspace: Workspace) -> datetime | None:
    """Return when the last archive was started, from the operation id in its key.

    None if there is none or the id has no time.
    """
    _, _, rest = (workspace.archive_key or "").partition("/")
    return time_of(rest.partition("/")[0])
