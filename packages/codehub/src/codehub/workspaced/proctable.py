"""Reads this workspace's process table from /proc, for the activity rules and `cpu_percent`."""

from __future__ import annotations

import contextlib
import os

from .activity import Proc

_TICKS = os.sysconf("SC_CLK_TCK")
_LONGEST_NAME = 200


def parse_stat(pid: int, text: bytes, command: bytes, schedstat: bytes = b"") -> Proc | None:
    """Parse one /proc/PID/stat and, if there is one, its schedstat (of its main thread).

    The name may contain spaces and parentheses, so it ends at the last parenthesis.
    """
    head, _, rest = text.rpartition(b") ")
    fields = rest.split()
    if len(fields) < 20 or fields[0] in (b"Z", b"X"):
        return None
    words = [word.decode("utf-8", "replace") for word in command.split(b"\0") if word]
    name = " ".join(words) if words else head.partition(b"(")[2].decode("utf-8", "replace")
    waited = schedstat.split()
    ticks = sum(int(fields[at]) for at in (11, 12, 13, 14))
    return Proc(
        pid=pid,
        start=int(fields[19]),
        parent=int(fields[1]),
        group=int(fields[2]),
        session=int(fields[3]),
        tty=int(fields[4]),
        foreground_group=int(fields[5]),
        cpu_s=ticks / _TICKS,
        name=name[:_LONGEST_NAME],
        waited_s=int(waited[1]) / 1e9 if len(waited) > 1 else 0.0,
    )


def read(uid: int) -> list[Proc]:
    """Return every process of this user."""
    found: list[Proc] = []
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            if os.stat(f"/proc/{entry}").st_uid != uid:
                continue
            with open(f"/proc/{entry}/stat", "rb") as file:
                text = file.read()
            with open(f"/proc/{entry}/cmdline", "rb") as file:
                command = file.read(4096)
        except OSError:
            continue
        schedstat = b""
        with contextlib.suppress(OSError):  # kernels without it
            with open(f"/proc/{entry}/schedstat", "rb") as file:
                schedstat = file.read()
        proc = parse_stat(int(entry), text, command, schedstat)
        if proc is not None:
            found.append(proc)
    return found
