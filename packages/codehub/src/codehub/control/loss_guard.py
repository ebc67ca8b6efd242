"""Counts homes that seem lost before any is marked: many at once point to a misconfiguration, not to a loss.

The resync, which sees all workspaces, fills it. The workers, which mark losses, ask it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from codehub.domain.stores import too_many_losses


@dataclass(slots=True)
class LossGuard:
    """Up to `most` apparent losses at once are accepted."""

    most: int = 3
    total: int = 0
    # Kept until the next resync.
    volumes: set[str] = field(default_factory=set)
    archives: set[str] = field(default_factory=set)

    @property
    def alarm(self) -> str:
        """Why nothing is marked as lost at the moment; empty if losses are marked."""
        lost = len(self.volumes | self.archives)
        if not too_many_losses(lost, self.total, self.most):
            return ""
        return (
            f"{lost} of {self.total} workspaces seem to have lost their data at once, so nothing is marked as lost: check "
            "the homes' disk and the archive store; COORDINATOR_MAX_LOSSES lets more be marked"
        )
