"""Time, passed in: the same code runs on the machine's clock and on a simulation's."""

from __future__ import annotations

from datetime import datetime
from typing import Protocol


class Clock(Protocol):
    def now(self) -> datetime:
        """Aware, in UTC. For what is stored and shown."""
        ...

    def monotonic(self) -> float:
        """Seconds that never go back. For deadlines."""
        ...
