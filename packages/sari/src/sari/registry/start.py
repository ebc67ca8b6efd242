"""Starts a daemon: detached, in a separate session. Knows within a bounded time whether it is ready or has failed.

The child's stdout is a pipe to which it writes one line, `{"ready": …}`, `{"failed": why}` or `{"use": …}` (another
daemon was first), before it closes the pipe. The child also holds our start lock, so that a second daemon cannot start
if we die.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sari.protocol.errors import SariError
from sari.registry.layout import Layout, check_outside, home_of, is_within, make_private_directory
from sari.registry.locks import FileLock
from sari.registry.model import DaemonEntry, parse_daemon
from sari.registry.programs import clean_environment, python_command
from sari.registry.roots import nearest_git

_LARGEST_STDERR = 1 << 20
# The daemon gives up by itself at the timeout (an alarm). Wait slightly longer for its report.
_GRACE_S = 5.0


class StartFailed(SariError):
    """Raised when no daemon could be started."""


class StartCutOff(StartFailed):
    """Raised when the daemon died before it could report, for example because it was killed. A retry may succeed."""


@dataclass(frozen=True, slots=True)
class StartPlan:
    """The ports of the new daemon, and the daemons that it replaces."""

    daemon_port: int
    http_port: int
    explicit_daemon_port: bool = False
    explicit_http_port: bool = False
    replaces: tuple[str, ...] = ()


def start_daemon(layout: Layout, plan: StartPlan, timeout_s: float, lock: FileLock) -> DaemonEntry:
    """Start a daemon and wait until it is ready. Raises `StartFailed`, in which case no process is left."""
    projects = _projects(os.environ)
    for project in projects:
        check_outside(layout, project, os.environ)
    make_private_directory(layout.data_dir)
    make_private_directory(layout.log_dir)
    stderr_path = os.path.join(layout.log_dir, "daemon-stderr.log")
    with contextlib.suppress(OSError):
        if os.path.getsize(stderr_path) > _LARGEST_STDERR:
            os.truncate(stderr_path, 0)
    try:
        descriptor = os.open(stderr_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    except OSError as error:
        raise StartFailed(f"cannot write the log {stderr_path} ({error.strerror}): make it writable") from error
    with open(descriptor, "ab") as stderr:
        mark = os.fstat(descriptor).st_size
        child = subprocess.Popen(
            python_command("sari.daemon", json.dumps(_arguments(layout, plan, timeout_s, lock))),
            env=clean_environment(os.environ, projects),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=stderr,
            cwd=layout.data_dir,
            close_fds=True,
            **_detached(lock),
        )
    report = _Report(child)
    try:
        line = report.wait(timeout_s + _GRACE_S)
    except BaseException:
        _end(child)
        raise
    if line is None:
        _end(child)
        raise StartFailed(f"the daemon was not ready after {timeout_s:g} seconds and was ended; see {stderr_path}")
    return _read_report(line, stderr_path, mark)


def _arguments(layout: Layout, plan: StartPlan, timeout_s: float, lock: FileLock) -> dict[str, object]:
    return {
        "registry_file": layout.registry_file,
        "daemon_port": plan.daemon_port,
        "http_port": plan.http_port,
        "explicit_daemon_port": plan.explicit_daemon_port,
        "explicit_http_port": plan.explicit_http_port,
        "replaces": list(plan.replaces),
        "start_timeout_s": timeout_s,
        "start_lock": lock.descriptor if os.name == "posix" else None,
    }


def _projects(environ: Mapping[str, str]) -> list[str]:
    """Return the projects that this process was started for: what its environment names in them is theirs."""
    with contextlib.suppress(OSError):
        here = os.getcwd()
        named = [here, nearest_git(here), environ.get("SARI_WORKSPACE_ROOT"), environ.get("CLAUDE_PROJECT_DIR")]
        home = home_of(environ) or ""
        # Not the home directory or one above it, where the user's own programs are.
        return [one for one in named if one and os.path.isabs(one) and not is_within(home, os.path.realpath(one))]
    return []


def _detached(lock: FileLock) -> dict[str, Any]:
    if sys.platform == "win32":
        return {"creationflags": subprocess.DETACHED_PROCESS | subprocess.CREATE_NEW_PROCESS_GROUP}
    # A separate session: a client that kills its process group must not kill the daemon.
    return {"start_new_session": True, "pass_fds": (lock.descriptor,)}


class _Report:
    """Reads the child's line in a thread, because pipes cannot be polled on every platform."""

    def __init__(self, child: subprocess.Popen[bytes]) -> None:
        self._child = child
        self._line: bytes | None = None
        self._thread = threading.Thread(target=self._read, name="sari-start", daemon=True)
        self._thread.start()

    def _read(self) -> None:
        assert self._child.stdout is not None
        with self._child.stdout as pipe:
            self._line = pipe.readline()
        # The child forks immediately and its parent half exits, so no zombie remains.
        self._child.wait()

    def wait(self, timeout_s: float) -> bytes | None:
        """Return the line (empty if the child died without writing one), or None on timeout."""
        self._thread.join(timeout_s)
        return None if self._thread.is_alive() else self._line


def _end(child: subprocess.Popen[bytes]) -> None:
    # The process group is the child's own session, which includes its daemon half.
    with contextlib.suppress(OSError):
        if sys.platform == "win32":
            child.kill()
        else:
            os.killpg(child.pid, signal.SIGKILL)
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.wait(_GRACE_S)


def _read_report(line: bytes, stderr_path: str, mark: int) -> DaemonEntry:
    try:
        report = json.loads(line) if line else {}
    except ValueError:
        report = {}
    if not isinstance(report, dict):
        report = {}
    fields = report.get("ready") or report.get("use")
    if isinstance(fields, dict):
        entry = parse_daemon(str(fields.get("boot_id")), fields)
        if entry is not None:
            return entry
    why = report.get("failed")
    if not isinstance(why, str):
        raise StartCutOff(
            f"the daemon could not start: it died before it was ready: {_last_words(stderr_path, mark)}"
        )
    raise StartFailed(f"the daemon could not start: {why}")


def _last_words(stderr_path: str, mark: int) -> str:
    with contextlib.suppress(OSError):
        with open(stderr_path, "rb") as file:
            file.seek(mark)
            words = file.read(64_000).decode(errors="replace").strip().splitlines()
        if words:
            return words[-1][:400]
    return f"no message; see {os.path.dirname(stderr_path)}"
