"""The contents of the registry file: reads every version, writes version 2.0. Pure; preserves unknown fields."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TypeGuard

VERSION = "2.0"
_Fields = Mapping[str, object]


class Damaged(ValueError):
    """Raised when the text is not a registry."""


@dataclass(frozen=True, slots=True)
class DaemonEntry:
    """One daemon. `process_mark` distinguishes its process from a later one with the same pid."""

    boot_id: str
    host: str
    port: int
    pid: int
    version: str
    start_ts: float = 0.0
    last_seen_ts: float = 0.0
    draining: bool = False
    token: str = ""
    process_mark: str = ""
    extra: _Fields = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class WorkspaceEntry:
    """The daemon that serves a root, and its HTTP port."""

    boot_id: str
    last_active_ts: float = 0.0
    http_host: str = "127.0.0.1"
    http_port: int = 0
    extra: _Fields = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Registry:
    """The contents of the file."""

    daemons: Mapping[str, DaemonEntry] = field(default_factory=dict)
    workspaces: Mapping[str, WorkspaceEntry] = field(default_factory=dict)
    extra: _Fields = field(default_factory=dict)

    def with_daemon(self, entry: DaemonEntry) -> Registry:
        """Return a copy that contains this daemon."""
        return replace(self, daemons={**self.daemons, entry.boot_id: entry})

    def with_workspace(self, root: str, entry: WorkspaceEntry) -> Registry:
        """Return a copy in which this root points at a daemon. Other roots are unchanged."""
        return replace(self, workspaces={**self.workspaces, root: entry})

    def without_daemons(self, boot_ids: set[str]) -> Registry:
        """Return a copy without these daemons and the workspaces that point at them."""
        return replace(
            self,
            daemons={key: entry for key, entry in self.daemons.items() if key not in boot_ids},
            workspaces={root: entry for root, entry in self.workspaces.items() if entry.boot_id not in boot_ids},
        )


def parse(text: str) -> Registry:
    """Read a registry of any version. Raises `Damaged`. A single bad entry is skipped."""
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Damaged(f"not JSON: {error}") from error
    if not isinstance(content, dict):
        raise Damaged("not an object")
    if content.get("version") == "1.0" or "instances" in content:
        return _migrate(content)
    daemons, workspaces = content.get("daemons"), content.get("workspaces")
    if not isinstance(daemons, dict) or not isinstance(workspaces, dict):
        raise Damaged("no daemons or workspaces in it")
    return Registry(
        {key: entry for key, fields in daemons.items() if (entry := parse_daemon(key, fields)) is not None},
        {root: place for root, fields in workspaces.items() if (place := _workspace(fields)) is not None},
        {key: value for key, value in content.items() if key not in ("version", "daemons", "workspaces")},
    )


def dump(registry: Registry) -> str:
    """Return the file's text in version 2.0."""
    daemons = {key: daemon_fields(entry) for key, entry in registry.daemons.items()}
    workspaces = {
        root: {
            **entry.extra,
            "boot_id": entry.boot_id,
            "last_active_ts": entry.last_active_ts,
            "http_host": entry.http_host,
            "http_port": entry.http_port,
        }
        for root, entry in registry.workspaces.items()
    }
    content = {**registry.extra, "version": VERSION, "daemons": daemons, "workspaces": workspaces}
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"


def daemon_fields(entry: DaemonEntry) -> dict[str, object]:
    """Return a daemon's entry as written to the registry and to its lifetime lock."""
    return {
        **entry.extra,
        "host": entry.host,
        "port": entry.port,
        "pid": entry.pid,
        "version": entry.version,
        "start_ts": entry.start_ts,
        "last_seen_ts": entry.last_seen_ts,
        "draining": entry.draining,
        "token": entry.token,
        "process_mark": entry.process_mark,
    }


def parse_daemon(boot_id: str, fields: object) -> DaemonEntry | None:
    """Return one daemon's entry, or None if the fields are invalid."""
    if not isinstance(fields, dict):
        return None
    port, pid = fields.get("port"), fields.get("pid")
    if not _is_port(port) or not isinstance(pid, int) or isinstance(pid, bool):
        return None
    known = {"host", "port", "pid", "version", "start_ts", "last_seen_ts", "draining", "token", "process_mark"}
    return DaemonEntry(
        boot_id,
        _text(fields.get("host"), "127.0.0.1"),
        port,
        pid,
        _text(fields.get("version"), "dev"),
        _number(fields.get("start_ts")),
        _number(fields.get("last_seen_ts")),
        fields.get("draining") is True,
        _text(fields.get("token"), ""),
        _text(fields.get("process_mark"), ""),
        {key: value for key, value in fields.items() if key not in known},
    )


def _workspace(fields: object) -> WorkspaceEntry | None:
    if not isinstance(fields, dict) or not isinstance(fields.get("boot_id"), str):
        return None
    http_port = fields.get("http_port")
    known = {"boot_id", "last_active_ts", "http_host", "http_port"}
    return WorkspaceEntry(
        fields["boot_id"],
        _number(fields.get("last_active_ts")),
        _text(fields.get("http_host"), "127.0.0.1"),
        http_port if _is_port(http_port) else 0,
        {key: value for key, value in fields.items() if key not in known},
    )


def _migrate(content: _Fields) -> Registry:
    """Convert version 1.0, which had one daemon per root and no boot ids: derive an id from the pid and port."""
    instances = content.get("instances")
    if not isinstance(instances, dict):
        raise Damaged("version 1.0 without instances")
    registry = Registry(extra={key: value for key, value in content.items() if key not in ("version", "instances")})
    for root, fields in instances.items():
        if not isinstance(fields, dict):
            continue
        boot_id = f"v1-{fields.get('pid')}-{fields.get('port')}"
        entry = parse_daemon(boot_id, fields)
        if entry is not None:
            registry = registry.with_daemon(entry).with_workspace(root, WorkspaceEntry(boot_id))
    return registry


def _is_port(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value < 65536


def _text(value: object, otherwise: str) -> str:
    return value if isinstance(value, str) else otherwise


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else 0.0
