"""What the commands print: tables for people, JSON for scripts. The words for states and errors come from the server."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

_TONES: Final[Mapping[str, str]] = {
    "RUNNING": "green",
    "ERROR": "red",
    "PROVISIONING": "yellow",
    "STOPPING": "yellow",
    "DELETING": "yellow",
}


def console(*, err: bool = False) -> Console:
    # Made for each command, so that it follows a stream that a test or a caller has put in place.
    return Console(stderr=err, highlight=False, soft_wrap=False)


def print_json(value: object) -> None:
    json.dump(value, sys.stdout, indent=2, ensure_ascii=False)
    sys.stdout.write("\n")


def print_table(headings: Sequence[str], rows: Iterable[Sequence[str | Text]]) -> None:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for index, heading in enumerate(headings):
        table.add_column(heading, overflow="fold" if index == 0 else "ellipsis", no_wrap=index != 0)
    for row in rows:
        table.add_row(*[cell if isinstance(cell, Text) else Text(cell) for cell in row])
    output = console()
    if not output.is_terminal:
        # A pipe has no width: nothing may be cut.
        output.width = 10_000
    output.print(table)


def status_text(workspace: Mapping[str, Any]) -> Text:
    return Text(str(workspace["status"]), style=_TONES.get(str(workspace["status"]), ""))


def doing(workspace: Mapping[str, Any]) -> str:
    """ "archiving, 62 %, 410 MB of 660 MB", or what went wrong, or where it rests: the server's words."""
    if workspace["status"] == "ERROR":
        return str(workspace.get("error_reason") or "error")
    summary = workspace["summary"]
    if workspace["operation"] == "NONE" and workspace["status"] == "RUNNING":
        return awake_words(workspace)
    return ", ".join(part for part in (str(summary["label"]).lower(), str(summary["text"])) if part)


def awake_words(workspace: Mapping[str, Any]) -> str:
    """Why a running workspace does not go to sleep although nobody is there."""
    if workspace["status"] != "RUNNING":
        return ""
    until = workspace.get("keep_awake_until")
    if until and datetime.fromisoformat(str(until)) > datetime.now(UTC):
        return f"kept awake until {datetime.fromisoformat(str(until)).astimezone():%Y-%m-%d %H:%M}"
    return f"kept awake by {by}" if (by := workspace.get("kept_awake_by")) else ""


def remedy(workspace: Mapping[str, Any]) -> str:
    """What happened to a workspace in ERROR, and what to do; empty for any other."""
    error = workspace.get("error")
    return f"{error['message']} {error['remedy']}" if error else ""


def when(timestamp: str | None) -> str:
    return datetime.fromisoformat(timestamp).astimezone().strftime("%Y-%m-%d %H:%M:%S") if timestamp else "–"
