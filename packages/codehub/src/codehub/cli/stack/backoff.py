"""Restart backoff: the delay grows with each restart and is reset after a stable period."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

_FIRST_S: Final = 0.5
_LONGEST_S: Final = 30.0
_STEADY_S: Final = 60.0


class Backoff:
    """The backoff of one supervised process. Its run time starts when this is created."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._begun = clock()
        self._wait_s = _FIRST_S

    def ended(self) -> float:
        """Return the delay before the restart. The next run starts after it."""
        ran_s = self._clock() - self._begun
        self._wait_s = _FIRST_S if ran_s > _STEADY_S else min(self._wait_s * 2, _LONGEST_S)
        self._begun = self._clock() + self._wait_s
        return self._wait_s
