"""Whether running instances answer: NotHealthy only after 3 failed probes over at least 30 s (docs/errors.md).

Results are kept per identity, so a new instance starts with none. They are dropped with the term.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from codehub.ports.clock import Clock

FAILURES_NEEDED: Final = 3
FAILING_FOR_S: Final = 30.0


@dataclass(slots=True)
class _Record:
    identity: str
    healthy: bool | None = None
    failures: int = 0
    first_failed_at: float = 0.0


class HealthTracker:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._records: dict[str, _Record] = {}

    def verdict(self, workspace_id: str, identity: str) -> bool | None:
        """True or False once decided, else None."""
        record = self._records.get(workspace_id)
        return record.healthy if record is not None and record.identity == identity else None

    def note(self, workspace_id: str, identity: str, answered: bool) -> bool:
        """Record a probe. Returns whether the verdict changed."""
        record = self._records.get(workspace_id)
        if record is None or record.identity != identity:
            record = self._records[workspace_id] = _Record(identity)
        before = record.healthy
        if answered:
            record.healthy, record.failures = True, 0
        else:
            now = self._clock.monotonic()
            if record.failures == 0:
                record.first_failed_at = now
            record.failures += 1
            if record.failures >= FAILURES_NEEDED and now - record.first_failed_at >= FAILING_FOR_S:
                record.healthy = False
        return record.healthy is not before

    def forget(self, workspace_id: str) -> None:
        self._records.pop(workspace_id, None)
