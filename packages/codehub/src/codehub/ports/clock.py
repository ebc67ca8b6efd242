"""Time as a dependency: the same code runs on the machine's clock and on a simulated one."""

from __future__ import annotations

from datetime import datetime
from typing import Protocol


class Clock(Protocol):
    def now(self) -> datetime:
        """Return the aware time in UTC, for storage and display."""
        ...

    def monotonic(self) -> float:
        """Return seconds that never go backwards, for deadlines."""
        ...
