"""The `codehub ws` commands for a workspace's setup: its output, repeating failed steps, stopping one that does not end."""

from __future__ import annotations

import sys
import time

import click

from codehub.cli.follow import follow_setup
from codehub.cli.options import connect, find_workspace, server_option, workspace_argument
from codehub.cli.output import console, program_output
from codehub.domain.errors import Conflict, Invalid

# The coordinator sees a retry within a second; a step may fail again immediately and look unchanged.
_SETUP_BEGINS_S = 5.0


def _other_repository(current: dict[str, str] | None, url: str | None, ref: str | None) -> dict[str, object] | None:
    """Return the body that names another repository, or the same one with another ref."""
    if url is None and ref is None:
        return None
    same = current if current is not None and url in (None, current["url"]) else {}
    if url is None and not same:
        raise Invalid("the workspace has no repository: name one with --repo")
    return {"repo": {"url": url or same["url"], "ref": same.get("ref", "") if ref is None else ref}}


@click.command("setup-log")
@workspace_argument
@server_option
def setup_log(workspace: str, server: str | None) -> None:
    """Print the output of a workspace's setup: the clone, dotfiles, commands.

    \b
    Example:
      codehub ws setup-log api
    """
    with connect(server) as client:
        found = find_workspace(client, workspace)
        with client.download(f"workspaces/{found['id']}/setup-log") as response:
            for piece in response.iter_text():
                sys.stdout.write(program_output(piece))


@click.command("retry-setup")
@workspace_argument
@click.option("--repo", metavar="URL", help="Clone this repository instead of the one that could not be cloned.")
@click.option("--ref", help="Clone this branch, tag or commit instead.")
@click.option("--wait/--no-wait", default=True, show_default=True, help="Wait until it is done.")
@server_option
def retry_setup(workspace: str, repo: str | None, ref: str | None, wait: bool, server: str | None) -> None:
    """Repeat the failed steps of a workspace's setup.

    \b
    Examples:
      codehub ws retry-setup api                after `codehub git-auth add git.example.org`
      codehub ws retry-setup api --ref develop  if the branch's name was wrong
    """
    with connect(server) as client:
        found = find_workspace(client, workspace)
        before = found["setup"]
        now = client.post(f"workspaces/{found['id']}:retry-setup", _other_repository(found["repo"], repo, ref))
        deadline = time.monotonic() + _SETUP_BEGINS_S
        while wait and now["setup"] == before and time.monotonic() < deadline:
            time.sleep(0.2)
            now = client.get(f"workspaces/{found['id']}")
        if wait:
            follow_setup(client, now)
            console().print(f"{found['name']}: the setup is done.")


@click.command("skip-setup")
@workspace_argument
@server_option
def skip_setup(workspace: str, server: str | None) -> None:
    """Stop the step of a workspace's setup that is running. The next step follows.

    \b
    Example:
      codehub ws skip-setup api    if the install script of your dotfiles does not end
    """
    with connect(server) as client:
        found = find_workspace(client, workspace)
        steps = [step for step in (found["setup"] or {}).get("steps", []) if step["may_skip"]]
        if found["status"] != "RUNNING" or not steps:
            raise Conflict(f"no step of the setup of {found['name']} is running")
        for step in steps:
            client.post(f"workspaces/{found['id']}:skip-setup", {"step": step["id"]})
            console().print(f"{found['name']}: stopped: {step['title']}")
