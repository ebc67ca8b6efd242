"""Calls a workspace's tools in this process, as the daemon does."""

from __future__ import annotations

from typing import Any

from sari.tools.workspace import Workspace


class UncancelledCall:
    """A call that is never cancelled."""

    cancelled = False

    def progress(self, done: float, total: float | None, message: str) -> None:
        return None


def call_tool(workspace: Workspace, tool: str, **arguments: object) -> Any:
    """Return the structured answer of a tool."""
    result = workspace.call(tool, arguments, UncancelledCall())
    assert not result.is_error, result.text
    return result.structured


def refusal_of(workspace: Workspace, tool: str, **arguments: object) -> str:
    """Return why a tool refuses a call."""
    result = workspace.call(tool, arguments, UncancelledCall())
    assert result.is_error, result.text
    return result.text
