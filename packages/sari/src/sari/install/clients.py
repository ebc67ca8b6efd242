"""The clients: the file each one reads, its format, and the entry that starts sari.

Data only. The locations of files come in as `Machine`, so nothing here reads the environment.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Final

from sari.install import jsontext, tomltext
from sari.install.jsonscan import Dialect

ENTRY = "sari"
# By default, Codex gives an optional server about a second in `exec`. The first start of a daemon takes longer.
_START_S: Final = 30
# sari answers or fails within 120 s. The client must not give up before that.
_CALL_S: Final = 150


class Scope(StrEnum):
    """The user's configuration, or the project's, which is shared with the project's files."""

    USER = "user"
    PROJECT = "project"


@dataclass(frozen=True, slots=True)
class Machine:
    """The facts that determine where clients keep their files."""

    home: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    platform: str = sys.platform

    def moved(self, variable: str, default: Path) -> Path:
        """Return a folder that the client allows a variable to override."""
        named = self.environment.get(variable, "")
        return Path(named) if named and os.path.isabs(named) else default


@dataclass(frozen=True, slots=True)
class Launch:
    """How a client starts sari: an absolute path, and variables that its environment would otherwise lack."""

    command: str
    arguments: tuple[str, ...] = ("mcp",)
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Client:
    """One AI tool's configuration."""

    name: str
    title: str
    section: str
    # None: the file is TOML.
    dialect: Dialect | None
    extra: Mapping[str, object] = field(default_factory=dict)
    # Keys of an entry for a server over HTTP. They are invalid beside a command.
    foreign_keys: tuple[str, ...] = ("url", "httpUrl", "serverUrl", "headers", "http_headers", "bearer_token_env_var")

    @property
    def path(self) -> tuple[str, str]:
        return (self.section, ENTRY)

    def file(self, scope: Scope, machine: Machine, project: Path) -> Path:
        return _project_file(self.name, project) if scope is Scope.PROJECT else _user_file(self.name, machine)

    def project_of(self, path: Path, machine: Machine) -> Path | None:
        """Return the project whose configuration this file is; None for the user's own."""
        if path == self.file(Scope.USER, machine, Path()):
            return None
        steps = len(self.file(Scope.PROJECT, machine, Path("/")).parts) - 1
        return path.parents[min(steps, len(path.parents)) - 1]

    def entry(self, launch: Launch) -> dict[str, object]:
        """Return the section's `sari` entry."""
        entry: dict[str, object] = {"command": launch.command, "args": list(launch.arguments), **self.extra}
        if launch.environment:
            entry["env"] = dict(launch.environment)
        return entry

    def read(self, text: str) -> dict[str, object]:
        return tomltext.read(text) if self.dialect is None else jsontext.read(text, self.dialect)

    def put(self, text: str, launch: Launch) -> str:
        """Return the file's text with sari's entry."""
        for key in self.foreign_keys:
            text = self._drop(text, (*self.path, key))
        # A user who installs sari wants it enabled, even if it was disabled before.
        present = self.configured(text) or {}
        for key, off in (("enabled", False), ("disabled", True)):
            if present.get(key) is off:
                text = self._drop(text, (*self.path, key))
        entry = self.entry(launch)
        if self.dialect is None:
            return tomltext.put(text, self.path, entry)
        return jsontext.put(text, self.path, entry, self.dialect)

    def drop(self, text: str) -> str:
        """Return the file's text without sari's entry."""
        return self._drop(text, self.path)

    def _drop(self, text: str, path: tuple[str, ...]) -> str:
        return tomltext.drop(text, path) if self.dialect is None else jsontext.drop(text, path, self.dialect)

    def configured(self, text: str) -> dict[str, object] | None:
        """Return the existing entry."""
        section = self.read(text).get(self.section)
        entry = section.get(ENTRY) if isinstance(section, dict) else None
        return entry if isinstance(entry, dict) else None

    def by_hand(self, launch: Launch) -> str:
        """Return the text that a user would add by hand."""
        if self.dialect is None:
            return tomltext.show(self.path, self.entry(launch))
        return json.dumps({self.section: {ENTRY: self.entry(launch)}}, indent=2, ensure_ascii=False)


CLIENTS: Final[Mapping[str, Client]] = {
    client.name: client
    for client in (
        Client(
            "codex",
            "Codex CLI",
            "mcp_servers",
            None,
            {"startup_timeout_sec": _START_S, "tool_timeout_sec": _CALL_S},
        ),
        Client("gemini", "Gemini CLI", "mcpServers", Dialect(comments=True), {"timeout": _CALL_S * 1000}),
        Client("claude", "Claude Code", "mcpServers", Dialect(), {"type": "stdio"}),
        Client("cursor", "Cursor", "mcpServers", Dialect(comments=True, trailing_commas=True), {"type": "stdio"}),
        Client("vscode", "VS Code", "servers", Dialect(comments=True, trailing_commas=True), {"type": "stdio"}),
    )
}


def _user_file(name: str, machine: Machine) -> Path:
    home = machine.home
    match name:
        case "codex":
            return machine.moved("CODEX_HOME", home / ".codex") / "config.toml"
        case "gemini":
            return machine.moved("GEMINI_CLI_HOME", home) / ".gemini" / "settings.json"
        case "claude":
            return machine.moved("CLAUDE_CONFIG_DIR", home) / ".claude.json"
        case "cursor":
            return home / ".cursor" / "mcp.json"
        case "vscode":
            return _vscode_folder(machine) / "User" / "mcp.json"
    raise KeyError(name)


def _vscode_folder(machine: Machine) -> Path:
    if machine.platform == "darwin":
        return machine.home / "Library" / "Application Support" / "Code"
    if machine.platform == "win32":
        return machine.moved("APPDATA", machine.home / "AppData" / "Roaming") / "Code"
    return machine.moved("XDG_CONFIG_HOME", machine.home / ".config") / "Code"


def _project_file(name: str, project: Path) -> Path:
    match name:
        case "codex":
            return project / ".codex" / "config.toml"
        case "gemini":
            return project / ".gemini" / "settings.json"
        case "claude":
            return project / ".mcp.json"
        case "cursor":
            return project / ".cursor" / "mcp.json"
        case "vscode":
            return project / ".vscode" / "mcp.json"
    raise KeyError(name)
