"""What the commands print: tables for people, JSON for scripts; facts into the same words as the dashboard's."""

from __future__ import annotations

import json
import os
import shutil
import sys
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import click

_TONES: Final[Mapping[str, str]] = {
    "RUNNING": "green",
    "ERROR": "red",
    "PROVISIONING": "yellow",
    "STOPPING": "yellow",
    "DELETING": "yellow",
}
_OPERATIONS: Final[Mapping[str, str]] = {
    "PROVISIONING": "making its home",
    "CREATE_EMPTY_ARCHIVE": "preparing",
    "RESTORING": "restoring",
    "STARTING": "starting",
    "STOPPING": "stopping",
    "ARCHIVING": "archiving",
    "DELETING": "deleting",
}
# What to do about an error, by its reason; the rest is in the timeline.
REMEDIES: Final[Mapping[str, str]] = {
    "Timeout": "It took too long without progress. Start it again, or look at `codehub ws logs`.",
    "DataLost": "Its home is not where it was left. An admin can run `codehub admin recover`.",
    "ArchiveCorrupted": "Its archive is damaged. An admin can run `codehub admin recover` with an older one.",
    "ImagePullFailed": "Its image could not be pulled. Check the name and the registry, then start it again.",
    "ContainerWithoutVolume": "It ran without its home. Stop it: the container is taken away first.",
    "ActionFailed": "An action failed: `codehub ws events` says which. Start it again.",
    "Unreachable": "A part of it could not be reached. Start it again.",
    "RetryExceeded": "It failed several times: `codehub ws events` and `codehub ws logs` say why.",
}


class Output:
    """One stream, for people: styled on a terminal, plain elsewhere. Nothing printed here is ever cut."""

    def __init__(self, *, err: bool = False) -> None:
        self._err = err

    @property
    def is_terminal(self) -> bool:
        return (sys.stderr if self._err else sys.stdout).isatty()

    def print(self, text: str, *, style: str | None = None) -> None:
        click.echo(click.style(text, fg=style) if style else text, err=self._err)


def console(*, err: bool = False) -> Output:
    return Output(err=err)


def print_json(value: object) -> None:
    json.dump(value, sys.stdout, indent=2, ensure_ascii=False)
    sys.stdout.write("\n")


@dataclass(frozen=True, slots=True)
class Cell:
    """A word in a table, and its colour on a terminal."""

    text: str
    style: str = ""


def print_table(
    headings: Sequence[str], rows: Iterable[Sequence[str | Cell]], *, optional: Sequence[str] = ()
) -> None:
    """Columns side by side. Where the terminal is too narrow the `optional` ones are left out, the first named first;
    what is shown is shown whole, since another command may need it."""
    cells = [[cell if isinstance(cell, Cell) else Cell(cell) for cell in row] for row in rows]
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


def _painted(cell: Cell) -> str:
    if not cell.style:
        return cell.text
    return click.style(cell.text, bold=True) if cell.style == "bold" else click.style(cell.text, fg=cell.style)


def _width(text: str) -> int:
    """Columns on a terminal: East Asian characters take two, combining ones none."""
    return sum(
        0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text
    )


def status_text(workspace: Mapping[str, Any]) -> Cell:
    return Cell(str(workspace["status"]), _TONES.get(str(workspace["status"]), ""))


def doing(workspace: Mapping[str, Any]) -> str:
    """ "archiving, 62 %, 410 MB of 660 MB", or what went wrong, or where it rests."""
    if workspace["status"] == "ERROR":
        return str(workspace.get("error_reason") or "error")
    operation = _OPERATIONS.get(str(workspace["operation"]))
    if operation is None:
        rests = {"STANDBY": "asleep", "ARCHIVED": "archived"}.get(str(workspace["phase"]), "")
        return "never started" if workspace["status"] == "CREATED" else rests
    progress = workspace.get("progress")
    return ", ".join([operation, *step_words(progress), *progress_words(progress)]) if progress else operation


def step_words(progress: Mapping[str, Any]) -> list[str]:
    """What is done within an operation, unless the operation's own name says it."""
    step = str(progress.get("step") or "")
    if step.startswith("install "):
        return [f"installing {step.removeprefix('install ')}"]
    return [words] if (words := {"verify": "reading back", "pull": "pulling its image"}.get(step)) else []


def progress_words(progress: Mapping[str, Any]) -> list[str]:
    done, total = int(progress.get("done") or 0), progress.get("total")
    unit = str(progress.get("unit") or "bytes")
    if unit == "steps":
        return [f"step {min(done + 1, int(total))} of {total}"] if total and int(total) > 1 else []
    if total:
        share = min(100, 100 * done // int(total))
        return [f"{share} %", f"{amount(done, unit)} of {amount(int(total), unit)}"]
    return [amount(done, unit)] if done else []


def amount(count: int, unit: str = "bytes") -> str:
    if unit != "bytes":
        return f"{count} {unit}"
    value = float(count)
    for name in ("bytes", "kB", "MB", "GB"):
        if value < 1000 or name == "GB":
            break
        value /= 1000
    return f"{value:.0f} {name}" if value >= 100 or name == "bytes" else f"{value:.1f} {name}"


def when(timestamp: str | None) -> str:
    return datetime.fromisoformat(timestamp).astimezone().strftime("%Y-%m-%d %H:%M:%S") if timestamp else "–"
