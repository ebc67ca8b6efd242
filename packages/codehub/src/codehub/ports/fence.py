"""The permission to change things, checked right before each destructive call (INV-11)."""

from __future__ import annotations

from collections.abc import Callable

from codehub.domain.model import Progress

# Raises FenceLost if the term is over. Cheap; called right before each destructive step, from any thread.
Fence = Callable[[], None]

# Receives the progress of a long step. Cheap; called from any thread; reports may be dropped.
Report = Callable[[Progress], None]


def no_fence() -> None:
    """For callers without concurrency by construction (tests, `codehub doctor`)."""


def ignore_progress(progress: Progress) -> None:
    """For callers that show no progress."""
