"""The `codehub ws` commands inside a workspace: exec, ps, ports, keep-awake, setup. Copying is in `ws_copy`."""

from __future__ import annotations

import re
import sys
from datetime import UTC, datetime, timedelta

import click

from codehub.cli.client import Client
from codehub.cli.options import (
    connect,
    find_workspace,
    inside,
    json_option,
    server_option,
    workspace_argument,
    workspace_before_command,
)
from codehub.cli.output import console, print_json, print_table, when
from codehub.domain.errors import Invalid

_DURATION = re.compile(r"(\d{1,6})([mhd])")  # more would be beyond the calendar
_UNITS = {"m": "minutes", "h": "hours", "d": "days"}


@click.command("exec", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@workspace_before_command
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
@click.option("--cwd", default=None, help="Working directory, relative to the home.")
@click.option("--env", "env", multiple=True, metavar="NAME=VALUE", help="Set a variable; may be repeated.")
@click.option("--stdin", "with_stdin", is_flag=True, help="Send standard input (up to 512 KB).")
@click.option("--timeout", "timeout_s", type=float, default=None, help="End it after this many seconds.")
@click.option("--detach", "-d", is_flag=True, help="Print its process id instead of waiting for it.")
@server_option
def exec_(
    workspace: str,
    command: tuple[str, ...],
    cwd: str | None,
    env: tuple[str, ...],
    with_stdin: bool,
    timeout_s: float | None,
    detach: bool,
    server: str | None,
) -> None:
    """Run a command in a workspace and pass on its output and exit code. Ctrl-C ends it.

    \b
    Examples:
      codehub ws exec api -- make test
      codehub ws exec api -- sh -c 'cd src && ls'
      codehub ws exec --detach api -- ./train.sh     keeps running; `codehub ws ps api` shows it
    """
    # Click ends the options at the workspace's name and passes a following `--` on.
    words = command[1:] if command[0] == "--" else command
    if not words:
        raise click.UsageError("Missing argument 'COMMAND...'.")
    body: dict[str, object] = {
        "command": list(words),
        "env": dict(_variable(each) for each in env),
        "wait": not detach,
        "kill_on_disconnect": not detach,
    }
    if cwd is not None:
        body["cwd"] = cwd
    if timeout_s is not None:
        body["timeout_s"] = timeout_s
    if with_stdin:
        body["stdin"] = _standard_input()
    with inside(server, workspace) as (client, found):
        path = f"workspaces/{found['id']}/exec"
        if detach:
            console().print(str(client.post(path, body)["process_id"]))
            return
        code = _streamed(client, path, body)
    raise click.exceptions.Exit(1 if code is None else code)


def _standard_input() -> str:
    try:
        return sys.stdin.buffer.read().decode()
    except UnicodeDecodeError:
        raise Invalid(
            "--stdin sends text, and this is no UTF-8: pass it through `codehub ssh`, or copy it with `codehub ws cp`"
        ) from None


def _variable(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise Invalid(f"--env {text!r}: write NAME=VALUE")
    return name, value


def _streamed(client: Client, path: str, body: dict[str, object]) -> int | None:
    code: int | None = None
    for piece in client.json_lines(path, body):
        if "stream" in piece:
            target = sys.stdout if piece["stream"] == "stdout" else sys.stderr
            target.write(str(piece["data"]))
            target.flush()
        elif "exit_code" in piece:
            code = piece["exit_code"]
    return code


@click.command()
@workspace_argument
@server_option
@json_option
def ps(workspace: str, server: str | None, as_json: bool) -> None:
    """List the processes started in a workspace by `exec`.

    \b
    Example:
      codehub ws ps api
    """
    with inside(server, workspace) as (client, found):
        items = client.get(f"workspaces/{found['id']}/processes")["items"]
    if as_json:
        print_json({"items": items})
        return
    print_table(
        ["ID", "STATE", "EXIT", "CPU", "STARTED", "COMMAND"],
        [
            [
                item["id"],
                item["state"],
                "" if item["exit_code"] is None else str(item["exit_code"]),
                f"{item['cpu_percent']:.0f} %",
                when(item["started_at"]),
                item["command"],
            ]
            for item in items
        ],
    )


@click.command()
@workspace_argument
@server_option
@json_option
def ports(workspace: str, server: str | None, as_json: bool) -> None:
    """List the listening ports of a workspace and their URLs.

    \b
    Example:
      codehub ws ports api
    """
    with inside(server, workspace) as (client, found):
        items = client.get(f"workspaces/{found['id']}/ports")["items"]
    if as_json:
        print_json({"items": items})
        return
    labels = (found.get("setup") or {}).get("port_labels", {})
    rows = [
        [str(port := item["port"]), labels.get(str(port), "–"), item["process"] or "–", item["share"], item["url"]]
        for item in items
    ]
    print_table(["PORT", "LABEL", "PROCESS", "SHARED WITH", "ADDRESS"], rows)


@click.command("keep-awake")
@workspace_argument
@click.argument("duration")
@server_option
@json_option
def keep_awake(workspace: str, duration: str, server: str | None, as_json: bool) -> None:
    """Keep a workspace awake for DURATION (30m, 4h, 2d), even if nothing runs in it; `off` ends it. Wakes it if it sleeps.

    \b
    Examples:
      codehub ws keep-awake api 4h
      codehub ws keep-awake api off
    """
    until = None if duration == "off" else (datetime.now(UTC) + parse_duration(duration)).isoformat()
    with connect(server) as client:
        found = client.post(f"workspaces/{find_workspace(client, workspace)['id']}:keep-awake", {"until": until})
    if as_json:
        print_json(found)
    else:
        awake = "stays awake" if found["status"] == "RUNNING" else "is started and stays awake"
        text = "may go to sleep again" if until is None else f"{awake} until {when(found['keep_awake_until'])}"
        console().print(f"{found['name']} {text}.")


def parse_duration(text: str) -> timedelta:
    match = _DURATION.fullmatch(text)
    if match is None or int(match[1]) == 0:
        raise Invalid(f"{text!r} is not a duration: write 30m, 4h or 2d")
    return timedelta(**{_UNITS[match[2]]: int(match[1])})
