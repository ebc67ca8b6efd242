"""`codehub login` and `logout`: exchange a password for a token; only the token is stored."""

from __future__ import annotations

import os
import socket
import sys
from dataclasses import replace
from urllib.parse import urlsplit

import click

from codehub.cli.client import Client
from codehub.cli.credentials import Credentials, Kept, check_reached, normal_server
from codehub.cli.options import connect, json_option, server_option
from codehub.cli.output import console, print_json
from codehub.domain.errors import CodeHubError, Invalid, Unauthorized


@click.command()
@click.argument("server", required=False)
@click.option("--server", "named", default=None, hidden=True)  # as all other commands have it
@click.option("--username", "-u", default=None, help="User name. Without it, the command asks.")
@click.option("--password-stdin", is_flag=True, help="Read the password from standard input.")
@click.option("--token-stdin", is_flag=True, help="Store this token (from the account page) instead of creating one.")
@json_option
def login(
    server: str | None,
    named: str | None,
    username: str | None,
    password_stdin: bool,
    token_stdin: bool,
    as_json: bool,
) -> None:
    """Sign in to SERVER (default: the last one, or the one that runs on this machine).

    \b
    Examples:
      codehub login
      codehub login https://codehub.example.org -u ada
      pass codehub | codehub login -u ada --password-stdin
    """
    credentials = Credentials(os.environ)
    address = normal_server(server) if server else credentials.server(named)
    if token_stdin:
        kept = _given_token(address, sys.stdin.readline().strip())
    else:
        if not sys.stdin.isatty() and (not username or not password_stdin):
            raise click.UsageError("without a terminal use --username with --password-stdin, or --token-stdin")
        name = username or click.prompt(
            "User name", default=os.environ.get("CODEHUB_ADMIN_USERNAME", "admin"), err=True
        )
        password = (
            sys.stdin.readline().rstrip("\n")
            if password_stdin
            else click.prompt("Password", hide_input=True, err=True)
        )
        kept = sign_in(address, name, password)
    credentials.keep(address, replace(kept, data_dir=_data_dir_behind(address)))
    if as_json:
        print_json({"server": address, "username": kept.username, "kept_in": str(credentials.path)})
        return
    console().print(f"Signed in to {address} as {kept.username}. The token is stored in {credentials.path}.")


@click.command()
@server_option
@json_option
def logout(server: str | None, as_json: bool) -> None:
    """Remove the stored token and revoke it on the server.

    \b
    Example:
      codehub logout
    """
    credentials = Credentials(os.environ)
    address = credentials.server(server)
    kept = credentials.kept(address)
    revoked = False
    if kept is not None:
        revoked = _revoke(address, kept)
        credentials.forget(address)
    if as_json:
        print_json({"server": address, "username": kept.username if kept else None, "revoked": revoked})
        return
    if kept is None:
        console().print(f"Not signed in to {address}.")
        return
    after = "and revoked it" if revoked else "but could not revoke it; revoke it on the account page"
    console().print(f"Removed the token of {kept.username} for {address} {after}.")


@click.command()
@server_option
@json_option
def whoami(server: str | None, as_json: bool) -> None:
    """Show which server you are signed in to, and as whom.

    \b
    Example:
      codehub whoami
    """
    with connect(server) as client:
        who = client.get("whoami")
    if who["user"] is None:
        raise Unauthorized(f"you are not signed in to {client.server}\nSign in with `codehub login`.")
    user = who.part("user")
    if as_json:
        print_json({"server": client.server, **who})
        return
    role = " (administrator)" if user["is_admin"] else ""
    console().print(f"{user['username']}{role} on {client.server}")


def sign_in(address: str, username: str, password: str) -> Kept:
    """Create a token, with a session that lasts only for this call."""
    with Client(address, None) as client:
        client.sign_in(username, password)
        made = client.post("tokens", {"name": f"codehub on {socket.gethostname()}"})
        client.post("logout")
    return Kept(username, str(made["token"]), str(made["id"]))


def _data_dir_behind(address: str) -> str:
    """Return the data directory of the CodeHub on this machine that listens at the address, or an empty string.

    The token is sent to nobody else then. That this user may not read the data directory says nothing about the address.
    """
    if urlsplit(address).scheme == "https":
        return ""  # proven by its certificate
    # Loading all settings takes a quarter of a second, which no other command here needs.
    from codehub.cli.local_installation import serves
    from codehub.settings import load_settings

    try:
        data_dir = load_settings(os.environ).data_dir
    except CodeHubError:  # settings of a server, which a client needs not have
        return ""
    return str(data_dir) if serves(data_dir, address) else ""


def _given_token(address: str, token: str) -> Kept:
    if not token.startswith("cht_"):
        raise Invalid("a token starts with cht_; create one on the account page")
    with Client(address, token) as client:
        who = client.get("session")
    return Kept(str(who.part("user")["username"]), token)


def _revoke(address: str, kept: Kept) -> bool:
    if not kept.token_id:
        return False
    try:
        check_reached(address, kept)
        with Client(address, kept.token) as client:
            client.delete(f"tokens/{kept.token_id}")
    except Unauthorized:
        return True
    except CodeHubError:
        return False
    return True
