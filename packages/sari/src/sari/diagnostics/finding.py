"""The result of one diagnostic check."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Finding:
    """One result: ok, a warning or an error, with the fix."""

    level: Literal["ok", "warning", "error"]
    what: str
    fix: str = ""
