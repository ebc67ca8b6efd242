"""The leading coordinator, as recorded in the database."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any


@dataclass(frozen=True, slots=True)
class Leadership:
    """The last recorded term, and whether the lock is currently held."""

    holder_id: str
    epoch: int
    acquired_at: datetime | None
    held: bool
    components: Mapping[str, Mapping[str, Any]]
