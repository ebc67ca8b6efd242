"""One line on a terminal's standard error that shows how far a command is. Nothing elsewhere."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Final

from codehub.domain.units import format_amount

_EVERY_S: Final = 0.2
_CLEAR: Final = "\r\x1b[K"


class ProgressLine:
    def __init__(self) -> None:
        self._terminal = sys.stderr.isatty()
        self._what, self._total, self._number, self._bytes = "", 0, 0, 0
        self._drawn_at = 0.0

    def __enter__(self) -> ProgressLine:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.clear()

    def begin(self, what: str, total: int = 0) -> None:
        """Begin a step with so many parts."""
        self._what, self._total, self._number, self._bytes = what, total, 0, 0
        self._draw()

    def next(self) -> None:
        """Begin the step's next part."""
        self._number += 1
        self._draw()

    def add(self, size: int) -> None:
        """Count bytes."""
        self._bytes += size
        if self._terminal and time.monotonic() - self._drawn_at >= _EVERY_S:
            self._draw()

    def clear(self) -> None:
        """Remove the line, for example before a message."""
        if self._terminal:
            sys.stderr.write(_CLEAR)
            sys.stderr.flush()

    def _draw(self) -> None:
        if not self._terminal:
            return
        self._drawn_at = time.monotonic()
        count = f" {self._number} of {self._total}" if self._total else ""
        size = f", {format_amount(self._bytes)}" if self._bytes else ""
        sys.stderr.write(f"{_CLEAR}{self._what}{count}{size}")
        sys.stderr.flush()
