"""The program that draws terminals in a browser: installed on first use, then served as files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol


class TerminalProgram(Protocol):
    @property
    def version(self) -> str: ...

    @property
    def installed(self) -> bool: ...

    def ensure(self) -> Path:
        """Install it unless it is there. Blocking. Raises a CodeHubError that says what is missing."""
        ...

    def files(self) -> Mapping[str, bytes]:
        """What the page loads, by name; for one that is installed."""
        ...
