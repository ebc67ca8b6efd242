"""`codehub tokens`: your API tokens. A token cannot create or revoke others, so these commands ask for your password."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
from collections.abc import Iterator

import click

from codehub.cli.client import Client
from codehub.cli.credentials import Credentials
from codehub.cli.options import connect, find_workspace, json_option, server_option
from codehub.cli.output import console, print_json, print_table, when
from codehub.cli.ws_copy import quoted
from codehub.cli.ws_inside import parse_duration
from codehub.domain.errors import Invalid

_DAY_S = 24 * 60 * 60

_username = click.option("--username", "-u", default=None, help="User name; whoever is signed in by default.")
_password_stdin = click.option("--password-stdin", is_flag=True, help="Read the password from standard input.")


@click.group()
def tokens() -> None:
    """Your API tokens, for scripts and other machines. `CODEHUB_TOKEN` gives one to `codehub`.

    \b
    Examples:
      codehub tokens create ci --workspace api --expires 30d
      codehub tokens ls
      codehub tokens revoke ci
    """


@tokens.command("ls")
@server_option
@json_option
def list_tokens(server: str | None, as_json: bool) -> None:
    """List your tokens, without their secrets.

    \b
    Example:
      codehub tokens ls
    """
    with connect(server) as client:
        items = list(client.every("tokens"))
    if as_json:
        print_json({"items": items})
        return
    rows = [
        [
            item["name"],
            item["workspace_id"] or "all",
            when(item["created_at"]),
            when(item["last_used_at"]),
            when(item["expires_at"]) if item["expires_at"] else "never",
            item["id"],
        ]
        for item in items
    ]
    print_table(["NAME", "WORKSPACE", "CREATED", "LAST USED", "EXPIRES", "ID"], rows)


@tokens.command()
@click.argument("name", required=False)
@click.option("--workspace", default=None, help="Restrict the token to this workspace.")
@click.option("--expires", metavar="DAYS", default=None, help="When it expires, such as 30d; never by default.")
@_username
@_password_stdin
@server_option
@json_option
def create(
    name: str | None,
    workspace: str | None,
    expires: str | None,
    username: str | None,
    password_stdin: bool,
    server: str | None,
    as_json: bool,
) -> None:
    """Create a token and print it. It is shown only once. NAME is what the list shows.

    \b
    Examples:
      codehub tokens create
      codehub tokens create ci --workspace api --expires 30d
      pass codehub | codehub tokens create ci --password-stdin
    """
    body: dict[str, object] = {"name": name or f"codehub on {socket.gethostname()}"}
    if expires is not None:
        body["expires_in_days"] = _days(expires)
    with _session(server, username, password_stdin=password_stdin) as client:
        if workspace is not None:
            body["workspace_id"] = find_workspace(client, workspace)["id"]
        made = client.post("tokens", body)
    print_json(made) if as_json else click.echo(made["token"])


@tokens.command()
@click.argument("token")
@_username
@_password_stdin
@server_option
def revoke(token: str, username: str | None, password_stdin: bool, server: str | None) -> None:
    """Revoke TOKEN, the id or the name of one. What uses it loses access immediately.

    \b
    Example:
      codehub tokens revoke ci
    """
    with _session(server, username, password_stdin=password_stdin) as client:
        named = [item["id"] for item in client.every("tokens") if item["name"] == token]
        if len(named) > 1:
            raise Invalid(f"several tokens are named {token!r}; use an id ({', '.join(named[:5])})")
        client.delete(f"tokens/{quoted(named[0] if named else token)}")
    console(err=True).print("Revoked.")


def _days(text: str) -> int:
    seconds = parse_duration(text).total_seconds()
    if seconds % _DAY_S:
        raise Invalid(f"--expires {text}: write whole days, such as 30d")
    return int(seconds // _DAY_S)


@contextlib.contextmanager
def _session(server: str | None, username: str | None, *, password_stdin: bool) -> Iterator[Client]:
    """Sign in for the duration of a command."""
    credentials = Credentials(os.environ)
    address = credentials.server(server)
    kept = credentials.kept(address)
    name = username or (kept.username if kept is not None else None)
    if name is None:
        raise click.UsageError("you are not signed in: name yourself with --username")
    if password_stdin:
        password = sys.stdin.readline().rstrip("\n")
    elif sys.stdin.isatty():
        password = str(click.prompt(f"Password of {name}", hide_input=True, err=True))
    else:
        raise click.UsageError("without a terminal use --password-stdin")
    with Client(address, None) as client:
        client.sign_in(name, password)
        try:
            yield client
        finally:
            client.post("logout")
