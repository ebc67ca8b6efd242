"""Shared by many commands: `--server`, `--json`, a client for the current server, and finding a workspace by name."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import click

from codehub.cli.answers import not_codehub
from codehub.cli.client import Client
from codehub.cli.credentials import Credentials
from codehub.cli.output import console
from codehub.domain.errors import CodeHubError, Conflict, Denied, NotFound

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

F = TypeVar("F", bound=Callable[..., Any])

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON for scripts.")
wait_options = (
    click.option("--wait/--no-wait", default=True, show_default=True, help="Wait until it is done."),
    click.option("--timeout", "timeout_s", type=float, default=None, help="Stop waiting after this many seconds."),
)


def server_option(command: F) -> F:
    return click.option(
        "--server", default=None, metavar="URL", help="URL of the CodeHub server; also CODEHUB_SERVER."
    )(command)


def waits(command: F) -> F:
    for option in reversed(wait_options):
        command = option(command)
    return command


def connect(server: str | None) -> Client:
    """Return a client for the current server, with its stored token."""
    credentials = Credentials(os.environ)
    address = credentials.server(server)
    return Client(address, credentials.token(address))


def find_workspace(client: Client, text: str, *, all_owners: bool = False) -> Mapping[str, Any]:
    """Find a workspace by id, id prefix or name. Raises NotFound, or Conflict if several match."""
    if len(text) == 36 and text.count("-") == 4:
        return _checked(client, client.get(f"workspaces/{text}"))
    try:
        found = list(client.every("workspaces", all=True) if all_owners else client.every("workspaces"))
    except Denied:
        only = client.get("session").get("workspace_id")
        if only is None:
            raise
        found = [client.get(f"workspaces/{only}")]  # the token is restricted to it
    named = [ws for ws in found if ws["name"] == text]
    matches = named or ([ws for ws in found if str(ws["id"]).startswith(text)] if len(text) >= 4 else [])
    if not matches:
        raise NotFound(f"there is no workspace {text!r}; `codehub ws ls` lists your workspaces")
    if len(matches) > 1:
        ids = ", ".join(str(ws["id"]) for ws in matches[:5])
        raise Conflict(f"several workspaces are named {text!r}; use an id ({ids})")
    return _checked(client, matches[0])


def _checked(client: Client, workspace: Mapping[str, Any]) -> Mapping[str, Any]:
    """Refuse an id of another form. Ids become host names for `ssh`, where `-oProxyCommand=…` would be an option."""
    # Only here: most commands find no workspace.
    from codehub.domain.ids import is_id

    if not is_id(str(workspace["id"])):
        raise not_codehub(client.server, "a workspace's id has another form")
    return workspace


@contextmanager
def inside(server: str | None, text: str) -> Iterator[tuple[Client, Mapping[str, Any]]]:
    """Yield a client and a workspace, for requests that wake it. Says so, and waits for as long as that takes."""
    with connect(server) as client:
        found = find_workspace(client, text)
        if found["status"] != "RUNNING":
            console(err=True).print(f"codehub: waking {found['name']} …")
        with client.without_timeout():
            yield client, found


def complete_workspace(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete workspace names for the shell. If the server does not answer, completes nothing and prints no error."""
    from click.shell_completion import CompletionItem

    try:
        with connect(ctx.params.get("server")) as client:
            return [
                CompletionItem(ws["name"], help=str(ws["status"]).lower())
                for ws in client.get("workspaces", per_page=200)["items"]
                if ws["name"].startswith(incomplete)
            ]
    except CodeHubError:
        return []


workspace_argument = click.argument("workspace", shell_complete=complete_workspace)


def _no_option(context: click.Context, parameter: click.Parameter, value: str) -> str:
    if value.startswith("-"):
        raise click.UsageError(f"No such option '{value}'.", context)
    return value


# For commands that pass what follows the name on as it is, options too.
workspace_before_command = click.argument("workspace", shell_complete=complete_workspace, callback=_no_option)
