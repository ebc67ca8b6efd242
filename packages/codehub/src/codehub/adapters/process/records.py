"""The record of each instance, and whether it is alive: by pid, start time and boot, never by pid alone.

What cannot be read is unknown, not absent: a home is archived and removed once its instance is.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from codehub.adapters.process.supervisor import start_ticks
from codehub.adapters.workspaced_launch import by_socket
from codehub.domain.errors import BackendDown
from codehub.ports.instances import Upstream

RECORD, EXIT, LOG = "record.json", "exit.json", "output.log"
# Errors that mean that there is no such file or process, or that it belongs to somebody else.
_ABSENT = (FileNotFoundError, NotADirectoryError, ProcessLookupError, PermissionError)


@cache
def boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


@dataclass(frozen=True, slots=True)
class Record:
    """The record that the supervisor wrote before it started."""

    workspace_id: str
    identity: str
    spec_digest: str
    boot: str
    pid: int
    start: int
    uid: int | None
    host: str
    port: int
    socket_path: str
    secret: tuple[str, str] | None
    workspaced_socket: str = ""  # empty for an instance started by an older CodeHub
    workspaced_secret: str = ""
    memory_limit_bytes: int = 0  # 0 if none was set

    @property
    def alive(self) -> bool:
        if self.boot != boot_id():
            return False
        try:
            return start_ticks(self.pid) == self.start and not _is_zombie(self.pid)
        except (*_ABSENT, ValueError, IndexError):
            return False
        except OSError as error:
            raise _unknown(error) from error

    @property
    def upstream(self) -> Upstream:
        return Upstream(self.identity, self.host, self.port, self.socket_path, self.secret, self.uid)

    @property
    def workspaced(self) -> Upstream | None:
        if not self.workspaced_socket:
            return None
        return by_socket(self.identity, self.workspaced_socket, self.workspaced_secret, self.uid)


def _is_zombie(pid: int) -> bool:
    with open(f"/proc/{pid}/stat", "rb") as file:
        return file.read().rpartition(b") ")[2][:1] in (b"Z", b"X")


def _unknown(error: OSError) -> BackendDown:
    return BackendDown(f"it cannot be determined which workspaces run: {error}")


def read_record(run_dir: Path) -> Record | None:
    """Return the record, or None if there is no usable one. Raises BackendDown if it cannot be read."""
    try:
        content = (run_dir / RECORD).read_bytes()
    except _ABSENT:
        return None
    except OSError as error:
        raise _unknown(error) from error
    try:
        raw = json.loads(content)
        secret = raw["secret"]
        return Record(
            workspace_id=str(raw["workspace_id"]),
            identity=str(raw["identity"]),
            spec_digest=str(raw["spec_digest"]),
            boot=str(raw["boot"]),
            pid=int(raw["pid"]),
            start=int(raw["start"]),
            uid=raw["uid"],
            host=str(raw["host"]),
            port=int(raw["port"]),
            socket_path=str(raw["socket_path"]),
            secret=(str(secret[0]), str(secret[1])) if secret else None,
            workspaced_socket=str(raw.get("workspaced_socket", "")),
            workspaced_secret=str(raw.get("workspaced_secret", "")),
            memory_limit_bytes=int(raw.get("memory_limit_bytes", 0)),
        )
    except (ValueError, KeyError, TypeError):
        return None


def exit_reason(run_dir: Path) -> str | None:
    """Return how a dead instance ended, or None if it was stopped on request."""
    try:
        raw = json.loads((run_dir / EXIT).read_bytes())
        if raw["requested"]:
            return None
        if raw.get("oom"):
            return "OOMKilled"
        return f"Signal:{raw['signal']}" if raw["signal"] else f"ExitCode:{raw['code']}"
    except (OSError, ValueError, KeyError, TypeError):
        return "Killed"  # together with its supervisor, so that nothing was recorded


def leftovers(identity: str, uid: int | None) -> list[int]:
    """Return processes of an instance whose supervisor is gone: by its own uid, else by the mark in their environment."""
    own = os.getpid()
    try:
        pids = [int(entry) for entry in os.listdir("/proc") if entry.isdigit()]
    except OSError as error:
        raise _unknown(error) from error
    return [pid for pid in pids if pid != own and is_leftover(pid, identity, uid)]


def is_leftover(pid: int, identity: str, uid: int | None) -> bool:
    try:
        if uid is not None:
            return os.stat(f"/proc/{pid}").st_uid == uid
        return f"CODEHUB_INSTANCE={identity}".encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except _ABSENT:
        return False
    except OSError as error:
        raise _unknown(error) from error
