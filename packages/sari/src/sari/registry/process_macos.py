"""Process information from `ps` on macOS and the BSDs. Not tested, for lack of a macOS machine."""

from __future__ import annotations

import subprocess
import time


def start_mark(pid: int) -> str | None:
    """Return a mark that identifies the process even if its pid is reused; None if it does not exist."""
    return _ask(pid, "lstart") or None


def started_at(pid: int) -> float | None:
    """Return when the process started, in seconds since the epoch."""
    text = _ask(pid, "lstart")
    return time.mktime(time.strptime(text, "%a %b %d %H:%M:%S %Y")) if text else None


def is_stopped(pid: int) -> bool:
    """Whether the process is stopped and cannot answer."""
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
