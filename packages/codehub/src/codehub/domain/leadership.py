"""The leading coordinator, and those that refuse to lead, as recorded in the database."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
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
    # Why a coordinator refuses to lead, by its name: it sees other stores than this installation's.
    refusals: Mapping[str, str] = field(default_factory=dict)
