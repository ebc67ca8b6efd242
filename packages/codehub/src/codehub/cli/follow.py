"""Waits until a workspace reaches the requested state, with a progress bar on a terminal and occasional lines in a log.

Polls that one workspace twice a second: cheaper for the server than an event stream, whose first message contains all of
them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from codehub.cli.client import Client
from codehub.cli.output import console, printable, progress_words, remedy
from codehub.domain.errors import CodeHubError, Conflict, NotFound, Unavailable

Workspace = Mapping[str, Any]

_INTERVAL_S = 0.5
# A server that restarts meanwhile is no reason to give up.
_TIMEOUT_S = 60.0

GOALS: Final[Mapping[str, tuple[str, Callable[[Workspace], bool]]]] = {
    "RUNNING": ("RUNNING", lambda ws: ws["status"] == "RUNNING"),
    "STANDBY": (
        "STANDBY",
        lambda ws: ws["operation"] == "NONE" and ws["phase"] in ("STANDBY", "ARCHIVED", "PENDING"),
    ),
    "ARCHIVED": ("ARCHIVED", lambda ws: ws["operation"] == "NONE" and ws["phase"] == "ARCHIVED"),
    "DELETED": ("DELETED", lambda ws: False),
}


class WentWrong(CodeHubError):
    """The workspace is in ERROR instead of the requested state."""


def follow(
    client: Client,
    workspace: Workspace,
    goal: str,
    *,
    timeout_s: float | None = None,
    quiet: bool = False,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> Workspace | None:
    """Return the workspace when it reaches the goal, or None when it is gone. Raises WentWrong, Conflict or Unavailable."""
    wanted, reached = GOALS[goal]
    begun = clock()
    with _progress_lines(str(workspace["name"]), quiet) as show:
        while True:
            now = _read_again(client, str(workspace["id"]), sleep, clock)
            if now is None:
                if goal == "DELETED":
                    return None
                raise NotFound(f"{workspace['name']} was deleted meanwhile")
            if reached(now):
                return now
            show(now)
            _check(now, wanted)
            if timeout_s is not None and clock() - begun > timeout_s:
                raise Unavailable(
                    f"{now['name']} is not {goal} after {timeout_s:g} s; it continues: `codehub ws show`"
                )
            sleep(_INTERVAL_S)


def follow_setup(
    client: Client,
    workspace: Workspace,
    timeout_s: float | None = None,
    *,
    quiet: bool = False,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> Workspace:
    """Return the workspace when its setup (the clone, dotfiles, commands) is over. Raises WentWrong if a step failed."""
    begun, printed = clock(), ""
    while True:
        now = _read_again(client, str(workspace["id"]), sleep, clock)
        if now is None:
            raise NotFound(f"{workspace['name']} was deleted meanwhile")
        setup = now.get("setup") or {"state": "running", "text": ""}
        running = [str(step["title"]) for step in setup.get("steps", []) if step["state"] == "running"]
        if running and running[0] != printed:
            printed = running[0]
            if not quiet:
                console(err=True).print(f"{now['name']}: {printed}")
        if setup["state"] == "failed":
            raise WentWrong(
                f"{now['name']} runs, but its setup failed: {setup['text']} `codehub ws setup-log {now['name']}` shows the "
                f"output; `codehub ws retry-setup {now['name']}` tries again."
            )
        if setup["state"] == "done" and setup.get("steps"):
            return now
        if now["desired_state"] != "RUNNING":
            raise Conflict(f"{now['name']} was set to {now['desired_state']} meanwhile")
        if timeout_s is not None and clock() - begun > timeout_s:
            raise Unavailable(f"the setup of {now['name']} has not finished after {timeout_s:g} s; it continues")
        sleep(_INTERVAL_S)


@contextmanager
def _progress_lines(name: str, quiet: bool) -> Iterator[Callable[[Workspace], None]]:
    """Yield a function that shows progress: not at all, as a bar, or as lines if the output is not a terminal."""
    output = console(err=True)
    if quiet:
        yield lambda _: None
    elif output.is_terminal:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        texts = ("{task.description}", "{task.fields[doing]}")
        name_column, doing_column = (TextColumn(text, markup=False) for text in texts)
        columns = (name_column, BarColumn(bar_width=30), doing_column)
        with Progress(*columns, TimeElapsedColumn(), console=Console(stderr=True), transient=True) as progress:
            bar = progress.add_task(printable(name), total=None, doing="")

            def draw(now: Workspace) -> None:
                done = now.get("progress") or {}
                progress.update(
                    bar,
                    completed=done.get("done") or 0,
                    total=done.get("total"),
                    doing=printable(progress_words(now)),
                )

            yield draw
    else:
        yield _lines(name, lambda line: output.print(line))


def _lines(name: str, say: Callable[[str], None]) -> Callable[[Workspace], None]:
    """Print a line for each new step, for every quarter of it, and for what it waits for; nothing until there is one."""
    operation, printed = "NONE", ""
    key: tuple[str | None, int] = (None, 0)

    def show(now: Workspace) -> None:
        nonlocal operation, printed, key
        before, operation = operation, now["operation"]
        done, blocked = now.get("progress"), now.get("blocked")
        if not blocked and (operation == "NONE" or (operation == before and not done)):
            return
        reached, what = _step_and_quarter(done or {}), progress_words(now)
        if (blocked or (operation, reached) != (before, key)) and what != printed:
            say(f"{name}: {what}")
        printed, key = what, reached

    return show


def _step_and_quarter(progress: Mapping[str, Any]) -> tuple[str | None, int]:
    total = int(progress.get("total") or 0)
    return progress.get("step"), 4 * int(progress.get("done") or 0) // total if total else 0


def _read_again(
    client: Client, workspace_id: str, sleep: Callable[[float], None], clock: Callable[[], float]
) -> Workspace | None:
    begun = clock()
    while True:
        try:
            return client.get(f"workspaces/{workspace_id}")
        except NotFound:
            return None
        except Unavailable:
            if clock() - begun > _TIMEOUT_S:
                raise
            sleep(_INTERVAL_S)


def _check(workspace: Workspace, wanted: str) -> None:
    # Right after a recovery, the phase is still ERROR but the reason is gone: only both together mean failure.
    if workspace["status"] == "ERROR" and workspace.get("error_reason"):
        reason = str(workspace["error_reason"])
        raise WentWrong(f"{workspace['name']} went wrong: {reason}. {remedy(workspace)}".strip())
    if workspace["desired_state"] != wanted and not (
        wanted == "STANDBY" and workspace["desired_state"] == "ARCHIVED"
    ):
        raise Conflict(f"{workspace['name']} was set to {workspace['desired_state']} meanwhile")
