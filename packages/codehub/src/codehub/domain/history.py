"""A workspace's timeline and archives, stored beside its row, as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class TimelineEntry:
    id: int
    at: datetime
    kind: str
    message: str
    actor: str
    detail: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Generation:
    """One committed archive of a workspace."""

    archive_key: str
    op_id: str
    committed_at: datetime
    bytes: int
    sha256: str
