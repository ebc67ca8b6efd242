"""The right to change things, checked right before each destructive call (INV-11)."""

from __future__ import annotations

from collections.abc import Callable

from codehub.domain.model import Progress

# Raises FenceLost when the term is over. Cheap; called right before each destructive step, from any thread.
Fence = Callable[[], None]

# Told how far a long step is; cheap, called from any thread, may be dropped.
Report = Callable[[Progress], None]


def no_fence() -> None:
    """For callers that are alone by construction (tests, `codehub doctor`)."""


def ignore_progress(progress: Progress) -> None:
    """For callers that show nothing."""
