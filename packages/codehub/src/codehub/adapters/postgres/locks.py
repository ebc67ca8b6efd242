"""Every advisory-lock id of ours, in one place, so that no two things ever share one.

The coordinator's own is a setting (COORDINATOR_LOCK_ID) and is taken in the one-argument space by its value.
"""

from __future__ import annotations

from typing import Final

# "CoHu" in ASCII keeps clear of small numbers people choose for COORDINATOR_LOCK_ID.
_BASE: Final = 0x436F4875 << 16

MIGRATE: Final = _BASE + 1
# Held for the moment in which a desired_state is set to RUNNING, so that concurrent requests cannot pass the limit.
RUNNING_LIMIT: Final = _BASE + 2
# Held from the insert of an audit event to its commit, so that ids and commits have the same order.
AUDIT: Final = _BASE + 3
