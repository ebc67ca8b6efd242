"""The commands' output: tables for users, JSON for scripts. The texts for states and errors come from the server.

Some of them come from workspaces: the names of their processes, why they failed, their output. What is printed must not
control the terminal: set its title, fill its clipboard, hide or forge lines.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import click

_TONES: Final[Mapping[str, str]] = {
    "RUNNING": "green",
    "ERROR": "red",
    "PROVISIONING": "yellow",
    "STOPPING": "yellow",
    "DELETING": "yellow",
}
# Control characters but tab and line feed, and those that change the direction of a text.
_CONTROL: Final = "\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069"
_UNSAFE: Final = re.compile(f"[{_CONTROL}]")
# In the output of programs: colours and progress bars stay.
_UNSAFE_OUTPUT: Final = re.compile(f"(\x1b\\[[0-9;:]*m|\r)|([{_CONTROL}])")
# JSON escapes the others by itself.
_UNSAFE_JSON: Final = re.compile("[\x7f-\x9f]")


def printable(text: str) -> str:
    """Return the text with control characters spelled out."""
    return _UNSAFE.sub(lambda match: _spelled(match[0]), text)


def program_output(text: str) -> str:
    """Return what a program of a workspace printed: as it is, but without control of a terminal."""
    if not sys.stdout.isatty():
        return text
    return _UNSAFE_OUTPUT.sub(lambda match: match[1] or _spelled(match[2]), text)


def json_line(value: object, *, indent: int | None = None) -> str:
    return _UNSAFE_JSON.sub(
        lambda match: f"\\u{ord(match[0]):04x}", json.dumps(value, indent=indent, ensure_ascii=False)
    )


def _spelled(char: str) -> str:
    return char.encode("unicode_escape").decode()


class Output:
    """An output stream for users: styled on a terminal, plain elsewhere. Never truncates."""

    def __init__(self, *, err: bool = False) -> None:
        self._err = err

    @property
    def is_terminal(self) -> bool:
        return (sys.stderr if self._err else sys.stdout).isatty()

    def print(self, text: str, *, style: str | None = None) -> None:
        safe = printable(text)
        click.echo(click.style(safe, fg=style) if style else safe, err=self._err)


def console(*, err: bool = False) -> Output:
    return Output(err=err)


def print_json(value: object) -> None:
    sys.stdout.write(json_line(value, indent=2) + "\n")


@dataclass(frozen=True, slots=True)
class Cell:
    """The text of a table cell, and its colour on a terminal."""

    text: str
    style: str = ""


def print_table(
    headings: Sequence[str], rows: Iterable[Sequence[str | Cell]], *, optional: Sequence[str] = ()
) -> None:
    """Print a table. If the terminal is too narrow, columns in `optional` are omitted in that order.

    Shown values are never truncated, because another command may need them.
    """
    cells = [[_safe(cell if isinstance(cell, Cell) else Cell(cell)) for cell in row] for row in rows]
    shown = list(range(len(headings)))
    widths = [
        max([_width(heading), *(_width(row[index].text) for row in cells)]) for index, heading in enumerate(headings)
    ]
    room = shutil.get_terminal_size().columns if sys.stdout.isatty() or "COLUMNS" in os.environ else sys.maxsize
    for name in optional:
        if sum(widths[index] + 2 for index in shown) - 2 <= room:
            break
        shown.remove(headings.index(name))
    lines = [[Cell(heading, "bold") for heading in headings], *cells] if any(headings) else cells
    for line in lines:
        parts = [_painted(line[index]) + " " * (widths[index] - _width(line[index].text)) for index in shown]
        click.echo("  ".join(parts).rstrip())


def _safe(cell: Cell) -> Cell:
    """A cell is one line: a line break would forge a row."""
    return Cell(printable(cell.text.replace("\n", " ")), cell.style)


def _painted(cell: Cell) -> str:
    if not cell.style:
        return cell.text
    return click.style(cell.text, bold=True) if cell.style == "bold" else click.style(cell.text, fg=cell.style)


def _width(text: str) -> int:
    """Return the width in terminal columns: East Asian characters take two, combining ones none."""
    return sum(
        0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text
    )


def status_text(workspace: Mapping[str, Any]) -> Cell:
    """Return the server's text, which the dashboard shows too."""
    return Cell(str(workspace["summary"]["label"]), _TONES.get(str(workspace["status"]), ""))


def doing(workspace: Mapping[str, Any]) -> str:
    """Return the server's detail text: "62 %, 410 MB of 660 MB", an error, or what keeps the workspace awake."""
    if workspace["status"] == "ERROR":
        return str(workspace.get("error_reason") or "error")
    if workspace["operation"] == "NONE" and workspace["status"] == "RUNNING" and not workspace.get("blocked"):
        return awake_words(workspace)
    return str(workspace["summary"]["text"])


def progress_words(workspace: Mapping[str, Any]) -> str:
    """Return the progress in one line: "archiving, 62 %, 410 MB of 660 MB"."""
    label = str(workspace["summary"]["label"]).lower()
    return ", ".join(part for part in (label, doing(workspace)) if part)


def awake_words(workspace: Mapping[str, Any]) -> str:
    """Return why a running workspace stays awake although it is unused."""
    if workspace["status"] != "RUNNING":
        return ""
    until = workspace.get("keep_awake_until")
    if until and datetime.fromisoformat(str(until)) > datetime.now(UTC):
        return f"kept awake until {datetime.fromisoformat(str(until)).astimezone():%Y-%m-%d %H:%M}"
    return f"kept awake by {by}" if (by := workspace.get("kept_awake_by")) else ""


def remedy(workspace: Mapping[str, Any]) -> str:
    """Return what happened to a workspace in ERROR and what to do. Empty in other states."""
    error = workspace.get("error")
    if not error:
        return ""
    detail = f" ({found.removesuffix('.')})" if (found := error.get("detail")) else ""
    return f"{error['message'].removesuffix('.')}{detail}. {error['remedy']}"


def when(timestamp: str | None) -> str:
    return datetime.fromisoformat(timestamp).astimezone().strftime("%Y-%m-%d %H:%M:%S") if timestamp else "–"
