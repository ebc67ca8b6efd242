"""How slowly a client may send a request body. A body that comes one byte a minute must not hold a connection for ever."""

from __future__ import annotations

from typing import Final

# How long a body may stop, and how far a client may fall behind the rate.
PAUSE_S: Final = 60.0
# Less than any connection that people work over; a log that is followed into a request may be slow.
MIN_BYTES_PER_S: Final = 100


def body_deadline(deadline: float, now: float, received: int) -> float:
    """Return the new deadline after `received` bytes. Bytes earn time at the rate, up to one pause from now."""
    return min(deadline + received / MIN_BYTES_PER_S, now + PAUSE_S)
