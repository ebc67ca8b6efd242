"""Runs one language server within a memory limit, and never longer than the process that started it.

Runs as a separate process, `python -I supervise.py LIFE_FD MEMORY_MB COMMAND…`. Standard input and output are the
server's. When the other end of the pipe LIFE_FD is closed, because the daemon closed it or was killed, or when the
server and its children together use more memory than allowed, all of them are killed.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import subprocess
import sys

_POLL_INTERVAL_S = 0.5
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
# Not all mapped memory is in use, so its limit is higher. It is a safeguard in case memory grows faster than it is
# checked.
_MAPPED = 3


def main() -> int:
    life, memory_mb, command = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    process = subprocess.Popen(command, preexec_fn=lambda: _limit(memory_mb))
    os.close(0)
    os.close(1)
    try:
        while process.poll() is None:
            # Nothing is ever written to the pipe, so readable means closed.
            if select.select([life], [], [], _POLL_INTERVAL_S)[0] or _used_mb(process.pid) > memory_mb:
                break
    finally:
        _kill_all(process)
    return 0


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


def _limit(memory_mb: int) -> None:
    import resource

    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_DATA, (_MAPPED * memory_mb << 20, _MAPPED * memory_mb << 20))
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.nice(5)


def _children() -> dict[int, list[int]]:
    """Return every process's children."""
    found: dict[int, list[int]] = {}
    # Only Linux lists them; on other systems, memory is not checked.
    for name in os.listdir("/proc") if os.path.isdir("/proc") else ():
        if name.isdigit():
            with contextlib.suppress(OSError, ValueError, IndexError), open(f"/proc/{name}/stat", "rb") as file:
                parent = int(file.read().rpartition(b")")[2].split()[1])
                found.setdefault(parent, []).append(int(name))
    return found


def _below(pid: int) -> list[int]:
    children = _children()
    found, waiting = [], [pid]
    while waiting:
        one = waiting.pop()
        found.append(one)
        waiting.extend(children.get(one, ()))
    return found


def _used_mb(pid: int) -> int:
    pages = 0
    for one in _below(pid):
        with contextlib.suppress(OSError, ValueError, IndexError), open(f"/proc/{one}/statm", "rb") as file:
            pages += int(file.read().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") >> 20


def _kill_all(process: subprocess.Popen[bytes]) -> None:
    """Kill the server and all processes that it started: as their subreaper, this process is an ancestor of all of them."""
    process.kill()
    for _ in range(20):
        pids = [pid for pid in _below(os.getpid()) if pid != os.getpid()]
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, 0)[0]:
                pass
        if not pids:
            break
    process.returncode = process.returncode or 0


if __name__ == "__main__":
    sys.exit(main())
