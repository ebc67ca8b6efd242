"""Processes as `ps` shows them on macOS and the BSDs. Not tested: there is no macOS here."""

from __future__ import annotations

import subprocess
import time


def start_mark(pid: int) -> str | None:
    """Which process this pid is, so that a reused pid is another; None when there is none."""
    return _ask(pid, "lstart") or None


def started_at(pid: int) -> float | None:
    """When the process was started, in seconds since the epoch."""
    text = _ask(pid, "lstart")
    return time.mktime(time.strptime(text, "%a %b %d %H:%M:%S %Y")) if text else None


def is_stopped(pid: int) -> bool:
    """Whether the process was stopped and can answer nobody."""
    return _ask(pid, "state").startswith("T")


def _ask(pid: int, column: str) -> str:
    done = subprocess.run(
        ["/bin/ps", "-o", f"{column}=", "-p", str(pid)],
        capture_output=True,
        text=True,
        check=False,
        env={"LC_ALL": "C"},
    )
    return done.stdout.strip()
