"""Homes that seem lost, counted before any is marked: many at once are a mistake of ours or of an operator, not a loss.

Filled by the resync, which sees everything; asked by the workers, which mark.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from codehub.domain.stores import too_many_losses


@dataclass(slots=True)
class LossGuard:
    """`most` may seem lost at once without further question."""

    most: int = 3
    total: int = 0
    # Kept until the next look finds them.
    volumes: set[str] = field(default_factory=set)
    archives: set[str] = field(default_factory=set)

    @property
    def alarm(self) -> str:
        """Why nothing is marked as lost now; empty while there is no reason."""
        lost = len(self.volumes | self.archives)
        if not too_many_losses(lost, self.total, self.most):
            return ""
        return (
            f"{lost} of {self.total} workspaces seem to have lost their data at once, so nothing is marked as lost: check "
            "the homes' disk and the archive store; COORDINATOR_MAX_LOSSES lets more be marked"
        )
