"""Where the data directory is, which process holds it, and with which settings.

Every command asks this before the first sign-in, so it loads neither the settings nor anything else that takes time.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from codehub.domain.errors import Conflict, Invalid


def default_data_dir() -> Path:
    """Root's directory must be reachable by the unprivileged uids of PostgreSQL and of the workspaces."""
    return Path("/var/lib/codehub") if os.geteuid() == 0 else Path.home() / ".local/share/codehub"


def may_be_held(environment: Mapping[str, str]) -> bool:
    """Return False if no CodeHub runs on this environment's data directory. A settings file may name another one."""
    if environment.get("CODEHUB_CONFIG_FILE"):
        return True
    return holder(Path(environment.get("CODEHUB_DATA_DIR") or default_data_dir())) is not None


@dataclass(frozen=True, slots=True)
class Holder:
    """The process that holds the data directory."""

    pid: int


class Lock:
    """Held while `up` runs; the kernel releases it when the process dies."""

    def __init__(self, data_dir: Path) -> None:
        self._path = data_dir / "up.lock"
        self._descriptor: int | None = None

    def __enter__(self) -> Lock:
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            who = holder(self._path.parent)
            raise Conflict(
                f"CodeHub is running on {self._path.parent} already{f' (pid {who.pid})' if who else ''}. "
                "Stop it with `codehub down`, or choose another CODEHUB_DATA_DIR."
            ) from None
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps({"pid": os.getpid()}).encode(), 0)
        self._descriptor = descriptor
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def holder(data_dir: Path) -> Holder | None:
    """Return the process that holds this data directory, or None."""
    try:
        descriptor = os.open(data_dir / "up.lock", os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        try:
            return Holder(int(json.loads(os.pread(descriptor, 200, 0))["pid"]))
        except (ValueError, KeyError):
            return Holder(0)
    finally:
        os.close(descriptor)
    return None


def read_environment(data_dir: Path) -> dict[str, str]:
    """Return the effective settings of the running (or last) `up`."""
    try:
        lines = (data_dir / "environment").read_text().splitlines()
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except PermissionError as error:
        raise Invalid(
            f"{data_dir / 'environment'} belongs to another user; run this as the user who ran `codehub up`"
        ) from error
    return dict(line.split("=", 1) for line in lines if "=" in line)
