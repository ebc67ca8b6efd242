"""Processes from the system's process table, for tests that count them and check that none is left.

Every sari process of a test has the test's HOME in its environment and is found only by that.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

DEADLINE_S = 90.0


def wait_until(true: Callable[[], object], what: str, deadline_s: float = DEADLINE_S) -> None:
    """Wait for a condition, with a generous deadline for a busy machine."""
    end = time.monotonic() + deadline_s
    pause = 0.005
    while not true():
        if time.monotonic() > end:
            raise AssertionError(f"not within {deadline_s:g} seconds: {what}")
        time.sleep(pause)
        pause = min(pause * 1.5, 0.1)


def processes_of(home: Path) -> list[int]:
    """Return the live processes (no zombies) with this HOME."""
    mark = f"HOME={home}".encode()
    return [pid for pid in _pids() if mark in _environ(pid) and _state(pid) not in ("Z", "X", "")]


def daemons_of(home: Path) -> list[int]:
    """Return the live daemons with this HOME."""
    found = [pid for pid in processes_of(home) if is_daemon(pid)]
    # A child of a daemon looks like it until it runs its own program.
    return [pid for pid in found if _parent(pid) not in found]


def _parent(pid: int) -> int:
    fields = _read(pid, "stat").rpartition(b") ")[2].split()
    return int(fields[1]) if len(fields) > 1 else 0


def is_daemon(pid: int) -> bool:
    """Return whether a process is a sari daemon or is becoming one."""
    return b"sari.daemon" in _read(pid, "cmdline").split(b"\0")


def memory_of(pid: int) -> int:
    """Return a process's memory in bytes, with its share of shared memory."""
    for line in _read(pid, "smaps_rollup").splitlines():
        if line.startswith(b"Pss:"):
            return int(line.split()[1]) * 1024
    return 0


def peak_memory_of(pid: int) -> int:
    """Return a process's peak memory in bytes."""
    for line in _read(pid, "status").splitlines():
        if line.startswith(b"VmHWM:"):
            return int(line.split()[1]) * 1024
    return 0


def kill(pid: int, number: int = signal.SIGKILL) -> None:
    """Signal a process that may already be gone."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def end_all(home: Path) -> None:
    """End all processes that a test left, by pid, until none is left."""

    def none_left() -> bool:
        left = processes_of(home)
        for pid in left:
            kill(pid, signal.SIGCONT)
            kill(pid)
        return not left

    wait_until(none_left, f"no process of {home} is left")


def _pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit() and int(name) != os.getpid()]


def _environ(pid: int) -> list[bytes]:
    return _read(pid, "environ").split(b"\0")


def _state(pid: int) -> str:
    content = _read(pid, "stat")
    return content[content.rindex(b")") + 2 :][:1].decode() if b")" in content else ""


def _read(pid: int, name: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""
