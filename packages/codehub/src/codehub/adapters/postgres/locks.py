"""Every advisory-lock id that CodeHub uses, in one place so that no two purposes share one.

The coordinator's lock id is a setting (COORDINATOR_LOCK_ID) and uses the one-argument key space.
"""

from __future__ import annotations

from typing import Final

# "CoHu" in ASCII, to stay clear of the small numbers that people choose for COORDINATOR_LOCK_ID.
_BASE: Final = 0x436F4875 << 16

MIGRATE: Final = _BASE + 1
# Held while a desired_state is set to RUNNING, so that concurrent requests cannot exceed the limit.
RUNNING_LIMIT: Final = _BASE + 2
# Held from the insert of an audit event until its commit, so that ids and commits have the same order.
AUDIT: Final = _BASE + 3
# Held while surplus audit events are removed, so that two processes do not count the same ones.
AUDIT_SURPLUS: Final = _BASE + 4
