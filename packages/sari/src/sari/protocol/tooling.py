"""The interfaces between the protocol layer, the tools and the daemon.

The daemon knows workspaces only through these protocols. The tools know nothing of MCP, sockets or sessions. Standard
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
    # False for a tool that changes files: its calls are refused outside the client's own roots.
    read_only: bool = True
    idempotent: bool = True
    # False for a tool that people use on the command line: it can be called, but is not in the tool list, which
    # costs every model tokens.
    listed: bool = True


@dataclass(frozen=True, slots=True)
class ToolResult:
    """The result of a call: text, the same as structured data, or an error that says what to do."""

    text: str
    structured: Mapping[str, object]
    is_error: bool = False


class Call(Protocol):
    """The running call, as seen by a tool. Tools run in a worker thread and check it periodically."""

    @property
    def cancelled(self) -> bool:
        """True once the client no longer needs the answer. The tool should stop soon; its result is discarded."""
        ...

    def progress(self, done: float, total: float | None, message: str) -> None:
        """Report progress to the client. Cheap; may be dropped."""
        ...


class OpenWorkspace(Protocol):
    """One workspace root, indexed and watched until it is closed. All methods are thread-safe and blocking."""

    @property
    def root(self) -> Path: ...

    def call(self, tool: str, arguments: Mapping[str, object], call: Call) -> ToolResult:
        """Answer one tool call. Bad arguments produce an `is_error` result; an exception is a bug."""
        ...

    def status(self) -> Mapping[str, object]:
        """Return what is indexed and how current it is, as the `status` tool's structured content. Never blocks on the
        index.
        """
        ...

    def is_warm(self) -> bool:
        """Whether everything is indexed and watched, so that a search takes milliseconds. Never blocks."""
        ...

    def close(self) -> None:
        """Stop watching and close the database. Returns when no thread or process of this workspace is left."""
        ...


class WorkspaceOpener(Protocol):
    """Opens a root for the daemon: `sari.tools.workspace.open_workspace`."""

    def __call__(self, root: Path, data_dir: Path) -> OpenWorkspace: ...
