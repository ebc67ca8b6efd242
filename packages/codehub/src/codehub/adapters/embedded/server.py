"""One embedded server process: starts it as its user, waits until it is ready, and stops it gracefully, then by force.

Knows nothing of the specific server; `postgres` and `valkey` do.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import psutil

from codehub.adapters.embedded.account import Account
from codehub.adapters.embedded.layout import open_log
from codehub.domain.errors import BackendDown

_POLL_S = 0.02
_LOG_LIMIT_BYTES = 10 << 20


def start_server(
    command: Sequence[str],
    *,
    account: Account,
    log: Path,
    cwd: Path,
    ready: Callable[[], bool],
    timeout_s: float = 120.0,
) -> subprocess.Popen[bytes]:
    """Run the command until `ready`. Raises BackendDown with the end of its log if it exits first or takes too long."""
    rotate(log)
    with os.fdopen(open_log(log, account), "ab") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=cwd,
            # Ctrl-C in the terminal is for CodeHub, which stops its servers last.
            start_new_session=True,
            env={"PATH": os.defpath, "LC_ALL": "C", "TZ": "UTC"},
            user=account.user,
            group=account.group,
            extra_groups=account.extra_groups,
        )
    deadline = time.monotonic() + timeout_s
    while not ready():
        if process.poll() is not None:
            raise BackendDown(f"{Path(command[0]).name} ended with {process.returncode} at its start:\n{tail(log)}")
        if time.monotonic() > deadline:
            stop_server(process, signal.SIGTERM)
            raise BackendDown(f"{Path(command[0]).name} was not ready after {timeout_s:.0f} s:\n{tail(log)}")
        time.sleep(_POLL_S)
    return process


def stop_server(process: subprocess.Popen[bytes], polite: signal.Signals, timeout_s: float = 30.0) -> None:
    """Stop the server and its descendants, and return once they are gone."""
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(polite)
        try:
            process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            kill_tree(process.pid)
    process.wait()


def stop_stray(pid: int, polite: signal.Signals, timeout_s: float = 30.0) -> None:
    """Like `stop_server`, for a server that a killed CodeHub left behind. Succeeds if it no longer exists."""
    try:
        process = psutil.Process(pid)
        process.send_signal(polite)
        process.wait(timeout_s)
    except psutil.NoSuchProcess:
        return
    except psutil.TimeoutExpired:
        kill_tree(pid)


def kill_tree(pid: int) -> None:
    """Send SIGKILL to a process and all its descendants."""
    try:
        parent = psutil.Process(pid)
        family = [parent, *parent.children(recursive=True)]
    except psutil.NoSuchProcess:
        return
    for process in family:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(family, timeout=30)


def rotate(log: Path) -> None:
    """Rotate a log that has grown large. One older log is kept."""
    with contextlib.suppress(FileNotFoundError):
        if log.stat().st_size > _LOG_LIMIT_BYTES:
            log.replace(log.with_suffix(".1"))


def tail(log: Path, lines: int = 12) -> str:
    try:
        return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])
    except OSError:
        return ""
