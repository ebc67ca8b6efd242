"""`codehub ssh`, `config-ssh`, `keys` and `port-forward`: access to workspaces from a terminal and from desktop IDEs."""

from __future__ import annotations

import contextlib
import difflib
import os
import shutil
import socket
import sys
import threading
from pathlib import Path
from typing import IO

import click

from codehub.cli import ssh_files
from codehub.cli.client import Client
from codehub.cli.credentials import Credentials
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
from codehub.cli.stream import hand_over, open_stream, relay
from codehub.domain.errors import CodeHubError, Conflict, Invalid, NotFound, Unauthorized


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@workspace_before_command
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
@click.option("--stdio", is_flag=True, help="Run as the ProxyCommand of `ssh`, over standard input and output.")
@click.option("--fd-pass", is_flag=True, hidden=True)
@server_option
def ssh(workspace: str, command: tuple[str, ...], stdio: bool, fd_pass: bool, server: str | None) -> None:
    """Open a shell in WORKSPACE, or run COMMAND in it, with OpenSSH. Wakes it if it is asleep.

    \b
    Examples:
      codehub ssh api
      codehub ssh api -- git status
      codehub ssh api -L 3000:localhost:3000       options of `ssh` itself
    """
    if stdio:
        _serve_stdio(workspace.removesuffix(ssh_files.SUFFIX), workspace, fd_pass, server)
        return
    program = shutil.which("ssh")
    if program is None:
        raise Conflict("ssh is not installed here: install OpenSSH's client")
    with connect(server) as client:
        found = find_workspace(client, workspace)
        _register(client)
        plain = str(found["url"]).startswith("http:")
    words = [program]
    for name, value in ssh_files.options(server=server, fd_passing=plain):
        words += ["-o", f"{name}={value}"]
    flags, rest = _split(command)
    os.execv(program, [*words, *flags, f"{found['id']}{ssh_files.SUFFIX}", *rest])  # noqa: S606


def _split(words: tuple[str, ...]) -> tuple[list[str], list[str]]:
    """Split into (ssh options, command): options are everything before `--` or before the first non-option word."""
    with_value = "BbcDEeFIiJLlmOopQRSWw"
    flags: list[str] = []
    at = 0
    while at < len(words) and words[at].startswith("-") and words[at] != "--":
        flags.append(words[at])
        if len(words[at]) == 2 and words[at][1] in with_value and at + 1 < len(words):
            at += 1
            flags.append(words[at])
        at += 1
    return flags, list(words[at + 1 :] if words[at : at + 1] == ("--",) else words[at:])


def _serve_stdio(name: str, host: str, fd_pass: bool, server: str | None) -> None:
    credentials = Credentials(os.environ)
    with inside(server, name) as (client, found):
        address = client.post(f"workspaces/{found['id']}/ssh")
        token = credentials.token(credentials.server(server))
    if token is None:
        raise Unauthorized("Sign in with `codehub login`.")
    ssh_files.remember_host(host.lower(), str(address["host_key"]))
    with open_stream(found, "ssh", token) as connection:
        if fd_pass:
            hand_over(connection, sys.stdout.fileno())
        else:
            relay(connection, sys.stdin.fileno(), sys.stdout.fileno())


def _register(client: Client) -> None:
    """Register our own key among the user's keys."""
    public = ssh_files.ensure_identity()
    client.post("keys", {"public_key": public})


@click.command("config-ssh")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@click.option("--remove", is_flag=True, help="Remove the block.")
@click.option(
    "--file", "path", type=click.Path(path_type=Path), default=None, help="Edit this file instead of ~/.ssh/config."
)
@server_option
def config_ssh(yes: bool, remove: bool, path: Path | None, server: str | None) -> None:
    """Make `ssh NAME.codehub` work, and with it scp, rsync, git, VS Code, Cursor and JetBrains Gateway.

    Adds a `Host *.codehub` block at the top of ~/.ssh/config and shows the change first. Running it again changes
    nothing. Put your own lines for these hosts above the block, because `ssh` uses the first value that it finds.

    \b
    Examples:
      codehub config-ssh
      ssh my-workspace.codehub
      codehub config-ssh --remove
    """
    target = path or Path(os.path.expanduser("~"), ".ssh", "config")
    wanted = None
    if not remove:
        with connect(server) as client:
            _register(client)
            plain = str(client.get("about").get("workspace_url", client.server)).startswith("http:")
        wanted = ssh_files.block(server=server, fd_passing=plain)
    old = ssh_files.read(target)
    new = ssh_files.with_block(old, wanted)
    if new == old:
        console().print(f"{target} is as it should be.")
        return
    shown = difflib.unified_diff(old.splitlines(True), new.splitlines(True), str(target), str(target))
    # Bytes that are no UTF-8 are kept in the file; only here they are shown as question marks.
    click.echo("".join(shown).encode("utf-8", "replace"), nl=False)
    if not yes:
        if not sys.stdin.isatty():
            raise click.UsageError("writing it needs confirmation; without a terminal use --yes")
        if not click.confirm("Write this?", default=True):
            console().print("Nothing was changed.")
            return
    try:
        ssh_files.change_config(target, wanted)
    except OSError as error:
        raise Conflict(
            f"{target} cannot be written ({error.strerror}): make the change above by hand, or name another --file"
        ) from error
    console().print("Removed." if remove else "Done. Try: ssh NAME.codehub")


@click.group()
def keys() -> None:
    """Your SSH public keys. They open your workspaces, together with a sign-in of `codehub`."""


@keys.command("add")
@click.argument("file", type=click.File("r"))
@click.option("--name", default="", help="Name of the key; its comment by default.")
@server_option
@json_option
def add_key(file: IO[str], name: str, server: str | None, as_json: bool) -> None:
    """Add the public key in FILE (`-` reads standard input).

    \b
    Example:
      codehub keys add ~/.ssh/id_ed25519.pub
    """
    with connect(server) as client:
        made = client.post("keys", {"public_key": file.read().strip(), "name": name})
    print_json(made) if as_json else click.echo(f"{made['fingerprint']} {made['name']}")


@keys.command("ls")
@server_option
@json_option
def list_keys(server: str | None, as_json: bool) -> None:
    """List your public keys.

    \b
    Example:
      codehub keys ls
    """
    with connect(server) as client:
        items = client.get("keys")["items"]
    if as_json:
        print_json({"items": items})
    else:
        rows = [[item["name"], item["fingerprint"], when(item["created_at"]), item["id"]] for item in items]
        print_table(["NAME", "FINGERPRINT", "ADDED", "ID"], rows)


@keys.command("rm")
@click.argument("key")
@server_option
def remove_key(key: str, server: str | None) -> None:
    """Remove a public key, by id, name or fingerprint.

    \b
    Example:
      codehub keys rm old-laptop
    """
    with connect(server) as client:
        matches = [k for k in client.get("keys")["items"] if key in (k["id"], k["name"], k["fingerprint"])]
        if not matches:
            raise NotFound(f"you have no SSH key {key!r}: `codehub keys ls` shows yours")
        for each in matches:
            client.delete(f"keys/{each['id']}")


@click.command("port-forward")
@workspace_argument
@click.argument("ports", nargs=-1, required=True)
@click.option("--address", default="127.0.0.1", show_default=True, help="Local address to listen on.")
@server_option
def port_forward(workspace: str, ports: tuple[str, ...], address: str, server: str | None) -> None:
    """Reach ports of WORKSPACE on this machine until Ctrl-C. PORT is `REMOTE` or `REMOTE:LOCAL`.

    \b
    Examples:
      codehub port-forward api 3000
      codehub port-forward api 3000:8080 5432
    """
    wanted = [_pair(each) for each in ports]
    credentials = Credentials(os.environ)
    token = credentials.token(credentials.server(server))
    if token is None:
        raise Unauthorized("Sign in with `codehub login`.")
    # Before the workspace is woken: a taken port is known at once.
    listeners = [(remote, _listen(address, local)) for remote, local in wanted]
    with inside(server, workspace) as (client, found):
        client.get(f"workspaces/{found['id']}/ports")
    for remote, listener in listeners:
        console().print(f"{address}:{listener.getsockname()[1]} → port {remote} of {found['name']}")
        threading.Thread(target=_accept, args=(listener, found, remote, token), daemon=True).start()
    with contextlib.suppress(KeyboardInterrupt):
        threading.Event().wait()


def _listen(address: str, port: int) -> socket.socket:
    try:
        return socket.create_server((address, port), reuse_port=False)
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno and error.errno > 0 else str(error)
        raise Conflict(f"{address}:{port} cannot be listened on: {reason}") from error


def _pair(text: str) -> tuple[int, int]:
    remote, _, local = text.partition(":")
    numbers = [int(each) if each.isdigit() and len(each) <= 5 else -1 for each in (remote, local or remote)]
    if not 1 <= numbers[0] <= 65535 or not 0 <= numbers[1] <= 65535:
        raise Invalid(f"{text!r}: write REMOTE or REMOTE:LOCAL, ports from 1 to 65535")
    return numbers[0], numbers[1]


def _accept(listener: socket.socket, found: object, port: int, token: str) -> None:
    while True:
        client, _ = listener.accept()
        threading.Thread(target=_carry, args=(client, found, port, token), daemon=True).start()


def _carry(client: socket.socket, found: dict[str, object], port: int, token: str) -> None:
    with client:
        try:
            with open_stream(found, f"tcp/{port}", token) as connection, contextlib.suppress(OSError):
                relay(connection, client.fileno(), client.fileno())
        except CodeHubError as error:
            console(err=True).print(f"codehub: {error}")
