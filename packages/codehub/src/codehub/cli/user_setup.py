"""`codehub git-auth`, `secrets` and `dotfiles`: your personal setup for your workspaces. Values are read, never printed."""

from __future__ import annotations

import base64
import contextlib
import sys
from pathlib import Path
from urllib.parse import quote

import click

from codehub.cli.options import connect, json_option, server_option
from codehub.cli.output import console, print_json, print_table, when
from codehub.domain.errors import Invalid, NotFound
from codehub.domain.user_secrets import SecretKind, check_secret, parse_git_host


def _value(prompt: str, *, from_stdin: bool) -> str:
    """Read from standard input or a hidden prompt; never from the command line, where others could read it."""
    if from_stdin or not sys.stdin.isatty():
        return sys.stdin.read().rstrip("\r\n")
    return str(click.prompt(prompt, hide_input=True, err=True))


@click.group("git-auth")
def git_auth() -> None:
    """Your credentials for git hosts. Git in your workspaces asks CodeHub for them each time; none is stored there.

    \b
    Examples:
      codehub git-auth add github.com           asks for a token
      codehub git-auth add https://git.example.org/team/api.git --username alice
      codehub git-auth key                      for SSH: prints your public key
    """


@git_auth.command("add")
@click.argument("host")
@click.option("--username", default="", help="User name that goes with the token; `git` by default.")
@click.option("--token-stdin", is_flag=True, help="Read the token from standard input.")
@server_option
@json_option
def add(host: str, username: str, token_stdin: bool, server: str | None, as_json: bool) -> None:
    """Store a token for HOST (a host name, or the URL of a repository on it).

    \b
    Example:
      codehub git-auth add github.com --token-stdin < token.txt
    """
    token = _value(f"Token for {host}", from_stdin=token_stdin)
    with connect(server) as client:
        made = client.post("git-credentials", {"host": host, "username": username, "token": token})
    if as_json:
        print_json(made)
    else:
        console().print(f"{made['host']}: stored. Running workspaces use it immediately.")


@git_auth.command("ls")
@server_option
@json_option
def list_credentials(server: str | None, as_json: bool) -> None:
    """List your credentials, without their tokens.

    \b
    Example:
      codehub git-auth ls
    """
    with connect(server) as client:
        items = client.get("git-credentials")["items"]
    if as_json:
        print_json({"items": items})
    else:
        rows = [[item["url"], item["username"], when(item["created_at"]), item["id"]] for item in items]
        print_table(["HOST", "USER NAME", "ADDED", "ID"], rows)


@git_auth.command("rm")
@click.argument("host")
@server_option
def remove(host: str, server: str | None) -> None:
    """Remove the credential for HOST, written as for `add`. Access ends immediately, also in running workspaces.

    \b
    Example:
      codehub git-auth rm github.com
    """
    with connect(server) as client:
        items = client.get("git-credentials")["items"]
        names = {host.lower().rstrip("/")}
        with contextlib.suppress(Invalid):
            names.add("://".join(parse_git_host(host)))
        matches = [item for item in items if names & {item["id"], item["host"], item["url"]}]
        if not matches:
            raise NotFound(f"you have no git credential for {host!r}: `codehub git-auth ls` shows yours")
        for each in matches:
            client.delete(f"git-credentials/{each['id']}")


@git_auth.command("key")
@click.option("--replace", is_flag=True, help="Replace the key with a new one.")
@click.option("--remove", "remove_it", is_flag=True, help="Remove the key.")
@server_option
@json_option
def key(replace: bool, remove_it: bool, server: str | None, as_json: bool) -> None:
    """Print the public part of your SSH key for git. Creates the key if you have none.

    Add it to your account at the git host. The private part stays in CodeHub, which signs for your workspaces.

    \b
    Example:
      codehub git-auth key
    """
    with connect(server) as client:
        if remove_it:
            client.delete("git-key")
            return
        found = client.post("git-key", {"replace": replace})
    print_json(found) if as_json else click.echo(found["public_key"])


@click.group()
def secrets() -> None:
    """Your secrets for your workspaces: environment variables, or files in memory. They are never in a home.

    \b
    Examples:
      codehub secrets set API_TOKEN               asks for the value
      codehub secrets set cert.pem --file ./cert.pem
      codehub secrets ls
    """


@secrets.command("set")
@click.argument("name")
@click.option(
    "--file",
    "path",
    type=click.Path(dir_okay=False, path_type=Path),
    default=None,
    help="Read the value from this file, and give it to workspaces as the file $CODEHUB_SECRETS_DIR/NAME.",
)
@click.option(
    "--as",
    "kind",
    type=click.Choice(["env", "file"]),
    default=None,
    help="Give it to workspaces as an environment variable or as a file.",
)
@server_option
@json_option
def set_secret(name: str, path: Path | None, kind: str | None, server: str | None, as_json: bool) -> None:
    """Set the secret NAME from standard input or a prompt. It becomes an environment variable.

    Files change immediately, also in running workspaces. Variables are set immediately in new web terminals and
    `codehub ws exec`, and in the IDE at the next start of its workspace.

    \b
    Examples:
      codehub secrets set API_TOKEN < token.txt
      codehub secrets set kubeconfig --file ~/.kube/config
    """
    if path is not None:
        try:
            value = path.read_bytes()
        except OSError as error:
            raise Invalid(f"{path} cannot be read: {error.strerror}") from error
    else:
        value = _value(f"Value of {name}", from_stdin=False).encode()
    given_as = SecretKind(kind or ("file" if path is not None else "env"))
    check_secret(name, given_as, value)  # here too, because a name with a slash is another address
    body = {"kind": given_as.value, "value": base64.b64encode(value).decode(), "base64": True}
    with connect(server) as client:
        made = client.put_json(f"secrets/{quote(name, safe='')}", body)
    if as_json:
        print_json(made)
    elif made["kind"] == "file":
        console().print(f"{name}: set. Running workspaces have it now, as $CODEHUB_SECRETS_DIR/{name}.")
    else:
        console().print(
            f"{name}: set. New terminals have it now; an IDE has it after the next start of its workspace."
        )


@secrets.command("ls")
@server_option
@json_option
def list_secrets(server: str | None, as_json: bool) -> None:
    """List your secrets, without their values.

    \b
    Example:
      codehub secrets ls
    """
    with connect(server) as client:
        items = client.get("secrets")["items"]
    if as_json:
        print_json({"items": items})
    else:
        shown = {"env": "environment", "file": "file"}
        rows = [[item["name"], shown[item["kind"]], str(item["bytes"]), when(item["updated_at"])] for item in items]
        print_table(["NAME", "GIVEN AS", "BYTES", "CHANGED"], rows)


@secrets.command("rm")
@click.argument("name")
@server_option
def remove_secret(name: str, server: str | None) -> None:
    """Remove a secret. Its file is removed immediately; running programs keep their environment until they end.

    \b
    Example:
      codehub secrets rm API_TOKEN
    """
    with connect(server) as client:
        client.delete(f"secrets/{quote(name, safe='')}")


@click.command()
@click.argument("url", required=False)
@click.option("--ref", default="", help="The branch, tag or commit; the default branch otherwise.")
@click.option("--none", "no_dotfiles", is_flag=True, help="Use no dotfiles.")
@server_option
@json_option
def dotfiles(url: str | None, ref: str, no_dotfiles: bool, server: str | None, as_json: bool) -> None:
    """Choose the repository of your dotfiles, or show it. It is used at the next start of each workspace.

    Its install.sh, bootstrap.sh or setup.sh is run; without one, its dotfiles are linked into the home.

    \b
    Examples:
      codehub dotfiles https://git.example.org/me/dotfiles.git
      codehub dotfiles --none
    """
    if url and no_dotfiles:
        raise click.UsageError("give a URL or --none, not both")
    with connect(server) as client:
        if url or no_dotfiles:
            found = client.put_json("dotfiles", {"url": url or "", "ref": ref})
        else:
            found = client.get("dotfiles")
    if as_json:
        print_json(found)
    else:
        click.echo(f"{found['url']} {found['ref']}".strip() or "no dotfiles")
