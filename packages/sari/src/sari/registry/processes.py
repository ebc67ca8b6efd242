"""Checks whether a recorded process is still the same process."""

from __future__ import annotations

import sys

if sys.platform == "win32":
    from sari.registry.process_windows import is_stopped, start_mark, started_at
elif sys.platform == "linux":
    from sari.registry.process_linux import is_stopped, start_mark, started_at
else:
    from sari.registry.process_macos import is_stopped, start_mark, started_at

__all__ = ["is_same_process", "is_stopped", "start_mark", "started_at"]

# Old files contain the daemon's own clock, read some time after the process started.
_START_SLACK_S = 2.0


def is_same_process(pid: int, mark: str | None, start_ts: float | None) -> bool:
    """Whether `pid` is alive and is the recorded process, by its mark, else by its start time."""
    if pid <= 0:
        return False
    if mark:
        return start_mark(pid) == mark
    at = started_at(pid)
    if at is None:
        return False
    # A process that started after its entry was written is a different one with the same pid.
    return not start_ts or at <= start_ts + _START_SLACK_S
