"""`codehub demo`: creates a few workspaces in different states to look around.

Everything goes through the API like any other command. The demo finds its workspaces by their description, so that running
it twice creates nothing twice and `--remove` deletes only those.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import click

from codehub.cli.client import Client
from codehub.cli.credentials import Credentials
from codehub.cli.effective_settings import effective_settings
from codehub.cli.follow import follow
from codehub.cli.local_installation import serves
from codehub.cli.login import sign_in
from codehub.cli.options import json_option, server_option
from codehub.cli.output import console, doing, print_json, print_table, status_text
from codehub.domain.errors import CodeHubError, LimitExceeded

MARK: Final = "(demo)"
_PUT_AWAY: Final = {"STANDBY": "stop", "ARCHIVED": "archive"}


@dataclass(frozen=True, slots=True)
class Shown:
    """One workspace of the demo and its target state."""

    name: str
    description: str
    memo: str
    goal: str  # RUNNING, STANDBY or ARCHIVED


# Workspaces that end up stopped come first: they run in between, and the number of running workspaces is limited.
SHOWN: Final = (
    Shown("idea", "created, never started", "", "NEW"),
    Shown(
        "last-years-thesis", "archived; press Restore to bring it back", "Its files are in the archive.", "ARCHIVED"
    ),
    Shown("weekend-project", "asleep because nobody used it", "Starting it takes seconds.", "STANDBY"),
    Shown("hello", "open me", "Press Open: the IDE is in your browser.", "RUNNING"),
)


@click.command()
@click.option("--remove", is_flag=True, help="Delete the demo workspaces.")
@click.option("--wait/--no-wait", default=True, show_default=True, help="Wait until they have reached their state.")
@server_option
@json_option
def demo(remove: bool, wait: bool, server: str | None, as_json: bool) -> None:
    """Create a few workspaces in different states to look around.

    \b
    Examples:
      codehub demo             create them
      codehub demo --remove    delete them
    """
    with _connected(server) as client:
        if remove:
            _remove(client, as_json)
            return
        # A workspace of the user's own with this name is as good to look at; names are unique.
        there = {ws["name"] for ws in client.every("workspaces")}
        for shown in SHOWN:
            if shown.name not in there:
                _make(client, shown, wait=wait, quiet=as_json)
        _print(client, as_json)


def _connected(server: str | None) -> Client:
    """Connect with the stored token or, on the machine that runs `codehub up`, with the admin's password file.

    The password goes only to the CodeHub that it belongs to: another user may listen at its address while it is stopped.
    """
    credentials = Credentials(os.environ)
    address = credentials.server(server)
    if credentials.token(address) is None:
        here = effective_settings(os.environ).settings
        kept = here.data_dir / "admin-password"
        if address == here.public_url and os.access(kept, os.R_OK) and serves(here.data_dir, address):
            made = sign_in(address, here.admin_username, kept.read_text(encoding="utf-8").strip())
            made = replace(made, data_dir=str(here.data_dir))
            credentials.keep(address, made)
            console(err=True).print(f"Signed in to {address} as {made.username}.")
    return Client(address, credentials.token(address))


def _make(client: Client, shown: Shown, *, wait: bool, quiet: bool) -> None:
    body = {
        "name": shown.name,
        "description": f"{shown.description} {MARK}",
        "memo": shown.memo,
        "start": shown.goal != "NEW",
    }
    try:
        made = client.post("workspaces", body)
        if shown.goal == "NEW" or not wait:
            return
        if shown.goal in _PUT_AWAY:
            # A stopped or archived workspace must have run before.
            follow(client, made, "RUNNING", quiet=quiet)
            made = client.post(f"workspaces/{made['id']}:{_PUT_AWAY[shown.goal]}")
        follow(client, made, shown.goal, quiet=quiet)
    except LimitExceeded as error:
        console(err=True).print(f"{shown.name}: skipped. {error}")
    except CodeHubError as error:
        # A failed workspace is a state to show, too; the others are still created.
        console(err=True).print(f"{shown.name}: {error}")


def _remove(client: Client, as_json: bool) -> None:
    gone = [ws for ws in client.every("workspaces") if _is_ours(ws)]
    for ws in gone:
        client.delete(f"workspaces/{ws['id']}", force=True)
    if as_json:
        print_json({"items": [{"id": ws["id"], "name": ws["name"], "status": "DELETING"} for ws in gone]})
    else:
        console().print(f"{len(gone)} workspaces are being deleted.")


def _print(client: Client, as_json: bool) -> None:
    ours = [ws for ws in client.every("workspaces") if _is_ours(ws)]
    if as_json:
        print_json({"items": ours})
        return
    rows = [[ws["name"], status_text(ws), doing(ws), ws["description"].removesuffix(f" {MARK}")] for ws in ours]
    print_table(["NAME", "STATUS", "DOING", ""], rows)
    console().print(f"\nLook around: {client.server}")


def _is_ours(workspace: Mapping[str, Any]) -> bool:
    return str(workspace["description"]).endswith(MARK)
