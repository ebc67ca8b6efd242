"""Whether a process written down earlier is still that process."""

from __future__ import annotations

import sys

if sys.platform == "win32":
    from sari.registry.process_windows import is_stopped, start_mark, started_at
elif sys.platform == "linux":
    from sari.registry.process_linux import is_stopped, start_mark, started_at
else:
    from sari.registry.process_macos import is_stopped, start_mark, started_at

__all__ = ["is_same_process", "is_stopped", "start_mark", "started_at"]

# Old files hold the daemon's own clock, read some time after the process began.
_START_SLACK_S = 2.0


def is_same_process(pid: int, mark: str | None, start_ts: float | None) -> bool:
    """Whether `pid` lives and is the process that was written down, by its mark, else by the time it started."""
    if pid <= 0:
        return False
    if mark:
        return start_mark(pid) == mark
    at = started_at(pid)
    if at is None:
        return False
    # A process that began after its entry was written is another one with the same number.
    return not start_ts or at <= start_ts + _START_SLACK_S
