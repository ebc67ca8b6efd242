"""What a tool is to the protocol layer, and what the daemon needs of an open workspace.

The daemon knows workspaces only through these protocols; the tools know nothing of MCP, sockets or sessions. Standard
library only: the shim answers `tools/list` from the catalogue of these specs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """One tool as `tools/list` shows it. Schemas are JSON Schema objects."""

    name: str
    title: str
    description: str
    input_schema: Mapping[str, object]
    output_schema: Mapping[str, object]
    read_only: bool = True
    """False for what changes files: its calls are refused outside the client's own roots."""
    idempotent: bool = True
    listed: bool = True
    """False for what people do on the command line: it can be called, but costs no model a line of its list."""


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What a call answered: text for people and models, the same as data, or an error that says what to do."""

    text: str
    structured: Mapping[str, object]
    is_error: bool = False


class Call(Protocol):
    """The running call, as a tool sees it. Tools run in a worker thread and ask now and then."""

    @property
    def cancelled(self) -> bool:
        """True once the client no longer wants the answer: stop soon, any result is dropped."""
        ...

    def progress(self, done: float, total: float | None, message: str) -> None:
        """Tell the client how far the call is. Cheap; may be dropped."""
        ...


class OpenWorkspace(Protocol):
    """One workspace root that is indexed and watched, until it is closed. All methods are thread-safe and blocking."""

    @property
    def root(self) -> Path: ...

    def call(self, tool: str, arguments: Mapping[str, object], call: Call) -> ToolResult:
        """Answer one tool call. Bad arguments are an `is_error` result; an exception is a defect."""
        ...

    def status(self) -> Mapping[str, object]:
        """What is indexed and how fresh, as the `status` tool's structured content. Never blocks on the index."""
        ...

    def close(self) -> None:
        """Stop watching and close the database. Returns when nothing of this workspace runs any more."""
        ...


class WorkspaceOpener(Protocol):
    """How the daemon opens a root: `sari.tools.workspace.open_workspace`."""

    def __call__(self, root: Path, data_dir: Path) -> OpenWorkspace: ...
