"""The `codehub ws` commands that change a workspace: each asks, then follows it to the end unless told not to."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import click

from codehub.cli.client import Client
from codehub.cli.follow import GOALS, follow
from codehub.cli.options import connect, find_workspace, json_option, server_option, waits, workspace_argument
from codehub.cli.output import console, doing, print_json
from codehub.domain.errors import Conflict


@click.command()
@click.argument("name")
@click.option("--description", default="", help="Description of the workspace.")
@click.option("--memo", default="", help="A note for yourself.")
@click.option("--profile", "image_ref", default=None, help="The IDE: a profile or an allowed image.")
@click.option("--start/--no-start", default=True, show_default=True, help="Start it after creating it.")
@click.option("--wait/--no-wait", default=False, show_default=True, help="Wait until it is done.")
@click.option("--timeout", "timeout_s", type=float, default=None, help="Stop waiting after this many seconds.")
@server_option
@json_option
def create(
    name: str,
    description: str,
    memo: str,
    image_ref: str | None,
    start: bool,
    wait: bool,
    timeout_s: float | None,
    server: str | None,
    as_json: bool,
) -> None:
    """Create the workspace NAME.

    \b
    Examples:
      codehub ws create api --wait
      codehub ws create notes --profile jupyterlab --description "experiments"
    """
    body: dict[str, object] = {"name": name, "description": description, "memo": memo, "start": start}
    if image_ref:
        body["image_ref"] = image_ref
    with connect(server) as client:
        made = client.post("workspaces", body)
        _finish(client, made, "RUNNING" if start else "ARCHIVED", wait, timeout_s, as_json)


@click.command()
@workspace_argument
@waits
@server_option
@json_option
def start(workspace: str, wait: bool, timeout_s: float | None, server: str | None, as_json: bool) -> None:
    """Start a workspace. An archived one is restored first; one in ERROR is retried.

    \b
    Examples:
      codehub ws start api                 follow it until it runs
      codehub ws start api --no-wait
      codehub ws start api --timeout 60    exit code 7 when it does not run by then
    """
    _ask(workspace, "start", "RUNNING", wait, timeout_s, server, as_json)


@click.command()
@workspace_argument
@waits
@server_option
@json_option
def stop(workspace: str, wait: bool, timeout_s: float | None, server: str | None, as_json: bool) -> None:
    """Stop a workspace. Its files stay on disk.

    \b
    Example:
      codehub ws stop api
    """
    _ask(workspace, "stop", "STANDBY", wait, timeout_s, server, as_json)


@click.command()
@workspace_argument
@waits
@server_option
@json_option
def archive(workspace: str, wait: bool, timeout_s: float | None, server: str | None, as_json: bool) -> None:
    """Archive a workspace. Starting it restores its files.

    \b
    Example:
      codehub ws archive api    follows it: archiving, 62 %, 410 MB of 660 MB
    """
    _ask(workspace, "archive", "ARCHIVED", wait, timeout_s, server, as_json)


@click.command("continue")
@workspace_argument
@waits
@server_option
@json_option
def continue_(workspace: str, wait: bool, timeout_s: float | None, server: str | None, as_json: bool) -> None:
    """Continue from the last archive, in a new workspace, while a workspace's node does not answer.

    The old workspace keeps its files. It is stopped when its node is back.

    \b
    Example:
      codehub ws continue api    creates and follows "api (continued)"
    """
    with connect(server) as client:
        found = find_workspace(client, workspace)
        made = client.post(f"workspaces/{found['id']}:continue-from-archive")
        _finish(client, made, "RUNNING", wait, timeout_s, as_json)


@click.command()
@workspace_argument
@click.option("--name", default=None, help="New name.")
@click.option("--description", default=None, help="Description of the workspace.")
@click.option("--memo", default=None, help="A note for yourself.")
@server_option
@json_option
def edit(
    workspace: str, name: str | None, description: str | None, memo: str | None, server: str | None, as_json: bool
) -> None:
    """Change a workspace's name, description or memo.

    \b
    Example:
      codehub ws edit api --memo "left off at the refund tests"
    """
    given = {"name": name, "description": description, "memo": memo}
    changes = {key: value for key, value in given.items() if value is not None}
    if not changes:
        raise click.UsageError("nothing to change: use --name, --description or --memo")
    with connect(server) as client:
        changed = client.patch(f"workspaces/{find_workspace(client, workspace)['id']}", changes)
    _show(changed, as_json)


@click.command()
@workspace_argument
@click.option("--force", is_flag=True, help="Delete it even if it is running; it is stopped first.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
@waits
@server_option
@json_option
def rm(
    workspace: str, force: bool, yes: bool, wait: bool, timeout_s: float | None, server: str | None, as_json: bool
) -> None:
    """Delete a workspace. It is archived first, and an administrator can undelete it for a day.

    \b
    Examples:
      codehub ws rm api                 asks first
      codehub ws rm api --force --yes   from a script, also while it runs
    """
    with connect(server) as client:
        found = find_workspace(client, workspace)
        if not yes:
            if not sys.stdin.isatty():
                raise click.UsageError("deleting needs confirmation; without a terminal use --yes")
            click.confirm(f"Delete {found['name']}?", abort=True, err=True)
        try:
            client.delete(f"workspaces/{found['id']}", force=force)
        except Conflict as error:
            raise Conflict(f"{error}\n`codehub ws rm {found['name']} --force` stops it first.") from error
        if wait:
            follow(client, found, "DELETED", timeout_s=timeout_s, quiet=as_json)
    if as_json:
        print_json({"id": found["id"], "name": found["name"], "status": "DELETED" if wait else "DELETING"})
    else:
        console().print(f"{found['name']}: {'DELETED' if wait else 'DELETING'}")


@click.command()
@workspace_argument
@waits
@server_option
@json_option
def restart(workspace: str, wait: bool, timeout_s: float | None, server: str | None, as_json: bool) -> None:
    """Restart a workspace: stop it, wait until it has stopped, and start it again.

    \b
    Example:
      codehub ws restart api
    """
    with connect(server) as client:
        found = find_workspace(client, workspace)
        if found["status"] == "RUNNING":
            stopping = client.post(f"workspaces/{found['id']}:stop")
            follow(client, stopping, "STANDBY", timeout_s=timeout_s, quiet=as_json)
        _finish(client, client.post(f"workspaces/{found['id']}:start"), "RUNNING", wait, timeout_s, as_json)


def _ask(
    workspace: str, verb: str, goal: str, wait: bool, timeout_s: float | None, server: str | None, as_json: bool
) -> None:
    with connect(server) as client:
        found = find_workspace(client, workspace)
        # What is there already is not an error: scripts may ask twice.
        there = GOALS[goal][1](found) and found["desired_state"] == goal
        on_its_way = found["desired_state"] == goal and found["status"] != "ERROR"
        asked = found if there or on_its_way else client.post(f"workspaces/{found['id']}:{verb}")
        _finish(client, asked, goal, wait, timeout_s, as_json)


def _finish(
    client: Client, asked: Mapping[str, Any], goal: str, wait: bool, timeout_s: float | None, as_json: bool
) -> None:
    reached = follow(client, asked, goal, timeout_s=timeout_s, quiet=as_json) if wait else asked
    _show(reached or asked, as_json)


def _show(workspace: Mapping[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(workspace)
        return
    tail = doing(workspace)
    console().print(f"{workspace['name']}: {workspace['status']}{f' ({tail})' if tail else ''}")


COMMANDS = (create, start, stop, restart, archive, continue_, edit, rm)
