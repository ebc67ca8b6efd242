"""The program that renders terminals in a browser: installed on first use, then served as files."""

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
        """Install it if necessary. Blocking. Raises a CodeHubError that names what is missing."""
        ...

    def files(self) -> Mapping[str, bytes]:
        """Return the files that the page loads, by name. It must be installed."""
        ...
