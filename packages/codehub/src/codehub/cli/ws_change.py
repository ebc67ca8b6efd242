"""The `codehub ws` commands that change a workspace. Each sends a request and follows it to the end, unless `--no-wait`."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import click

from codehub.cli.client import Client
from codehub.cli.follow import GOALS, follow, follow_setup
from codehub.cli.options import connect, find_workspace, json_option, server_option, waits, workspace_argument
from codehub.cli.output import console, doing, print_json
from codehub.cli.parameters import given_parameters, parameter_option
from codehub.domain.errors import Conflict


@click.command()
@click.argument("name")
@click.option("--description", default="", help="Description of the workspace.")
@click.option("--memo", default="", help="A note for yourself.")
@click.option("--profile", "image_ref", default=None, help="The IDE: a profile or an allowed image.")
@click.option("--template", default=None, help="Template to create it from; `codehub templates ls` lists them.")
@parameter_option
@click.option("--repo", default=None, metavar="URL", help="Clone this repository into its home.")
@click.option("--ref", default=None, help="The branch, tag or commit to check out; the default branch otherwise.")
@click.option("--path", default=None, help="The folder in the repository that the IDE opens.")
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
    template: str | None,
    parameters: tuple[str, ...],
    repo: str | None,
    ref: str | None,
    path: str | None,
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
      codehub ws create shop --template web --param node=22 --param debug=true
      codehub ws create api --repo https://git.example.org/team/api.git --ref develop --wait
    """
    if parameters and template is None:
        raise click.UsageError("--param belongs to a template; use --template")
    if template is not None and image_ref is not None:
        raise click.UsageError("use --template or --profile, not both")
    if repo is None and (ref or path):
        raise click.UsageError("--ref and --path need --repo")
    body: dict[str, object] = {"name": name, "description": description, "memo": memo, "start": start}
    if image_ref:
        body["image_ref"] = image_ref
    if repo:
        body["repo"] = {"url": repo, "ref": ref or "", "path": path or ""}
    with connect(server) as client:
        if template is not None:
            known = client.get(f"templates/{quote(template, safe='')}")["parameters"] if parameters else []
            body |= {"template": template, "parameters": given_parameters(parameters, known)}
        made = client.post("workspaces", body)
        if wait and start and _has_setup(client, made, body):
            # The state is shown once, after the setup is complete too.
            reached = follow(client, made, "RUNNING", timeout_s=timeout_s, quiet=as_json)
            _show(follow_setup(client, reached or made, timeout_s, quiet=as_json), as_json)
        else:
            _finish(client, made, "RUNNING" if start else "ARCHIVED", wait, timeout_s, as_json)


def _has_setup(client: Client, made: Mapping[str, Any], body: Mapping[str, object]) -> bool:
    """Return whether it is created with a repository or with commands of its template."""
    if made["repo"] is not None or "template" not in body:
        return made["repo"] is not None
    asked = {"name": body["template"], "parameters": body["parameters"]}
    (preview,) = client.post("/templates:preview", asked)["items"]
    return bool((preview["resolved"] or {}).get("setup"))


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
      codehub ws archive api    shows its progress: archiving, 62 %, 410 MB of 660 MB
    """
    _ask(workspace, "archive", "ARCHIVED", wait, timeout_s, server, as_json)


@click.command("continue")
@workspace_argument
@waits
@server_option
@json_option
def continue_(workspace: str, wait: bool, timeout_s: float | None, server: str | None, as_json: bool) -> None:
    """Continue from the last archive, in a new workspace, while a workspace's node does not answer.

    The old workspace keeps its files and is stopped when its node is back.

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
@server_option
@json_option
def cancel(workspace: str, server: str | None, as_json: bool) -> None:
    """Cancel a start, restore or archive in progress. The workspace returns to its previous state; no file is lost.

    \b
    Example:
      codehub ws cancel api
    """
    with connect(server) as client:
        found = find_workspace(client, workspace)
        _show(client.post(f"workspaces/{found['id']}:cancel"), as_json)


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
    """Delete a workspace. It is archived first, and an administrator can undelete it, by default for a day.

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
        console().print(f"{found['name']}: {'deleted' if wait else 'deleting'}")


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


@click.command()
@workspace_argument
@click.argument("name")
@click.option("--start/--no-start", default=True, show_default=True, help="Start the copy.")
@click.option("--wait/--no-wait", default=False, show_default=True, help="Wait until it is done.")
@click.option("--timeout", "timeout_s", type=float, default=None, help="Stop waiting after this many seconds.")
@server_option
@json_option
def duplicate(
    workspace: str,
    name: str,
    start: bool,
    wait: bool,
    timeout_s: float | None,
    server: str | None,
    as_json: bool,
) -> None:
    """Create the workspace NAME with a copy of the files of a stopped or archived one.

    \b
    Examples:
      codehub ws duplicate api api-experiment --wait
      codehub ws duplicate api backup --no-start
    """
    with connect(server) as client:
        found = find_workspace(client, workspace)
        made = client.post(f"workspaces/{found['id']}:duplicate", {"name": name, "start": start})
        _finish(client, made, "RUNNING" if start else "ARCHIVED", wait, timeout_s, as_json)


@click.command("update-template")
@workspace_argument
@parameter_option
@click.option("--dry-run", is_flag=True, help="Only show what would change.")
@server_option
@json_option
def update_template(
    workspace: str, parameters: tuple[str, ...], dry_run: bool, server: str | None, as_json: bool
) -> None:
    """Update a workspace to the newest version of its template at its next start.

    Parameters keep their values unless --param changes them. Files in the home are not touched.

    \b
    Examples:
      codehub ws update-template shop --dry-run
      codehub ws update-template shop --param node=24
    """
    with connect(server) as client:
        found = find_workspace(client, workspace)
        offer = client.get(f"workspaces/{found['id']}/template")
        if dry_run:
            changed, answer = None, offer
        else:
            known = client.get(f"templates/{offer['name']}")["parameters"] if parameters else []
            body = {"parameters": given_parameters(parameters, known)}
            changed = answer = client.post(f"workspaces/{found['id']}:update-template", body)
    if as_json:
        print_json(answer)
        return
    for problem in offer["problems"] if dry_run else ():
        console(err=True).print(f"{problem['where']}: {problem['message']}", style="red")
    for line in offer["changes"]:
        console().print(f"  {line}")
    if changed is None:
        console().print(f"{found['name']}: version {offer['version']}, newest {offer['latest_version']}")
    elif changed["template"]["pending_version"] is None:
        console().print(f"{found['name']}: nothing to update")
    else:
        version = changed["template"]["pending_version"]
        console().print(f"{found['name']}: runs by version {version} from its next start on")


def _ask(
    workspace: str, verb: str, goal: str, wait: bool, timeout_s: float | None, server: str | None, as_json: bool
) -> None:
    with connect(server) as client:
        found = find_workspace(client, workspace)
        # Already being in that state is not an error: scripts may repeat a request.
        there = GOALS[goal][1](found) and found["desired_state"] == goal
        on_its_way = found["desired_state"] == goal and found["status"] != "ERROR"
        if there and not as_json and found["status"] != "CREATED":
            console().print(f"{found['name']}: already {found['summary']['label'].lower()}")
            return
        answer = found if there or on_its_way else client.post(f"workspaces/{found['id']}:{verb}")
        _finish(client, answer, goal, wait, timeout_s, as_json)


def _finish(
    client: Client, answer: Mapping[str, Any], goal: str, wait: bool, timeout_s: float | None, as_json: bool
) -> None:
    reached = follow(client, answer, goal, timeout_s=timeout_s, quiet=as_json) if wait else answer
    _show(reached or answer, as_json)


def _show(workspace: Mapping[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(workspace)
        return
    tail = doing(workspace)
    console().print(f"{workspace['name']}: {workspace['summary']['label']}{f' ({tail})' if tail else ''}")
