"""Times as the API shows them."""

from __future__ import annotations

from datetime import datetime, timezone

# What a datetime can hold. A file may have any time.
_FIRST, _LAST = -62_135_596_800, 253_402_300_799


def timestamp(unix_s: float) -> str:
    """Format a time like the other timestamps of the API: `2026-11-17T06:20:26.768820Z`."""
    at = datetime.fromtimestamp(min(max(unix_s, _FIRST), _LAST), timezone.utc)
    return at.isoformat(timespec="microseconds").replace("+00:00", "Z")
