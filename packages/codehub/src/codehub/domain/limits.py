"""Limits on workspaces, and on running ones. The caller counts in the transaction that adds or starts one."""

from __future__ import annotations

from dataclasses import dataclass

from codehub.domain.errors import LimitExceeded, WorkspaceLimitExceeded


@dataclass(frozen=True, slots=True)
class RunningLimits:
    per_user: int
    in_all: int


def check_running_limits(limits: RunningLimits, *, others_of_user: int, others_in_all: int) -> None:
    """Raise LimitExceeded if another running workspace would exceed a limit.

    The counts cover all *other* workspaces whose desired state is RUNNING, except those in ERROR: nothing of them runs.
    """
    if others_of_user >= limits.per_user:
        raise LimitExceeded(
            f"you have {others_of_user} running workspaces, and the limit is {limits.per_user}: stop one first"
        )
    if others_in_all >= limits.in_all:
        raise LimitExceeded(
            f"{others_in_all} workspaces are running, and the limit is {limits.in_all}: try again when one has stopped"
        )


def check_workspace_limit(most: int, have: int, *, owner: str = "") -> None:
    """Raise WorkspaceLimitExceeded if one more workspace would exceed the limit. 0: there is none.

    `owner` names another user than the one who asks. Deleted workspaces are not counted; one that is being deleted is,
    because it still has a home.
    """
    if not most or have < most:
        return
    if owner:
        raise WorkspaceLimitExceeded(
            f"{owner} has {have} workspaces, and the limit is {most}: {owner} has to delete one first, or an administrator "
            "raises CODEHUB_MAX_WORKSPACES_PER_USER"
        )
    raise WorkspaceLimitExceeded(
        f"you have {have} workspaces, and the limit is {most}: delete one first. One that is being deleted counts until "
        "that is done"
    )
