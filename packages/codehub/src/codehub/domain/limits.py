"""Limits on running workspaces. The caller counts in the transaction that sets desired_state RUNNING."""

from __future__ import annotations

from dataclasses import dataclass

from codehub.domain.errors import LimitExceeded


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
