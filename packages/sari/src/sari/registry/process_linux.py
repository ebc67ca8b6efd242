"""Process information from Linux's /proc."""

from __future__ import annotations

import os


def start_mark(pid: int) -> str | None:
    """Return a mark that identifies the process even if its pid is reused; None if it does not exist or is a zombie."""
    fields = _stat(pid)
    if fields is None or fields[0] in (b"Z", b"X"):
        return None
    return f"{_boot_mark()}:{int(fields[19])}"


def started_at(pid: int) -> float | None:
    """Return when the process started, in seconds since the epoch."""
    fields = _stat(pid)
    if fields is None or fields[0] in (b"Z", b"X"):
        return None
    with open("/proc/stat", "rb") as file:
        boot = next(int(line.split()[1]) for line in file if line.startswith(b"btime"))
    return boot + int(fields[19]) / os.sysconf("SC_CLK_TCK")


def is_stopped(pid: int) -> bool:
    """Whether the process is stopped (SIGSTOP, a debugger) and cannot answer."""
    fields = _stat(pid)
    return fields is not None and fields[0] in (b"T", b"t")


def _stat(pid: int) -> list[bytes] | None:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            content = file.read()
    except OSError:
        return None
    # The process name is in parentheses and may contain any character, so split after the last parenthesis.
    return content[content.rindex(b")") + 2 :].split()


def _boot_mark() -> str:
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read(8)
    except OSError:
        return "boot"
