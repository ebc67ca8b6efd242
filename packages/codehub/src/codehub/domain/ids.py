"""The format of CodeHub's ids. Any other text is rejected before it reaches the database."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Final

_UUID7: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
ID_LENGTH: Final = 36


def is_id(text: str) -> bool:
    """Return whether the text is a UUIDv7 in lower case."""
    return _UUID7.fullmatch(text) is not None


def time_of(op_id: str) -> datetime | None:
    """Return when an id was created, or None if it is not one. An operation's id may have an incarnation appended."""
    if not is_id(op_id[:36]):
        return None
    return datetime.fromtimestamp(int(op_id[:8] + op_id[9:13], 16) / 1000, UTC)
