"""What the commands print: tables for people, JSON for scripts; facts into the same words as the dashboard's."""

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
    """ "archiving, 62 %, 410 MB of 660 MB", or what went wrong, or where it rests."""
    if workspace["status"] == "ERROR":
        return str(workspace.get("error_reason") or "error")
    operation = _OPERATIONS.get(str(workspace["operation"]))
    if operation is None:
        if awake := awake_words(workspace):
            return awake
        rests = {"STANDBY": "asleep", "ARCHIVED": "archived"}.get(str(workspace["phase"]), "")
        return "never started" if workspace["status"] == "CREATED" else rests
    progress = workspace.get("progress")
    return ", ".join([operation, *step_words(progress), *progress_words(progress)]) if progress else operation


def awake_words(workspace: Mapping[str, Any]) -> str:
    """Why a running workspace does not go to sleep although nobody is there."""
    if workspace["status"] != "RUNNING":
        return ""
    until = workspace.get("keep_awake_until")
    if until and datetime.fromisoformat(str(until)) > datetime.now(UTC):
        return f"kept awake until {datetime.fromisoformat(str(until)).astimezone():%Y-%m-%d %H:%M}"
    return f"kept awake by {by}" if (by := workspace.get("kept_awake_by")) else ""


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
