"""The `codehub ws` commands for what goes on in a workspace: processes, files, terminals, and who may open a port."""

from __future__ import annotations

import codecs
import sys

import click

from codehub.cli.options import connect, find_workspace, inside, json_option, server_option, workspace_argument
from codehub.cli.output import console, print_json, print_table, program_output, when
from codehub.cli.ws_copy import quoted
from codehub.cli.ws_inside import parse_duration
from codehub.domain.errors import Conflict

_port = click.argument("port", type=click.IntRange(1, 65535))


@click.command()
@workspace_argument
@click.argument("process")
@click.option("--follow", "-f", is_flag=True, help="Keep printing until the process ends.")
@click.option("--after", type=click.IntRange(0), default=0, metavar="N", help="Skip the first N bytes.")
@click.option("--stderr", is_flag=True, help="Print its standard error instead.")
@server_option
def output(workspace: str, process: str, follow: bool, after: int, stderr: bool, server: str | None) -> None:
    """Print the output of PROCESS, an id of `codehub ws ps`. Never wakes the workspace.

    \b
    Examples:
      codehub ws output api 4f1c22d0 --follow
      codehub ws output api 4f1c22d0 --after 65536
    """
    query = f"after={after}&follow={int(follow)}&stream={'stderr' if stderr else 'stdout'}"
    with connect(server) as client:
        path = f"workspaces/{find_workspace(client, workspace)['id']}/processes/{quoted(process)}/output?{query}"
        with client.streaming("GET", path) as response:
            if sys.stdout.isatty():
                decoder = codecs.getincrementaldecoder("utf-8")("replace")
                for piece in response.iter_bytes():
                    sys.stdout.write(program_output(decoder.decode(piece)))
                    sys.stdout.flush()
            else:
                for piece in response.iter_bytes():
                    sys.stdout.buffer.write(piece)
                    sys.stdout.buffer.flush()


@click.command()
@workspace_argument
@click.argument("process")
@click.argument("signal", default="TERM")
@server_option
def signal(workspace: str, process: str, signal: str, server: str | None) -> None:
    """Send SIGNAL (TERM by default) to PROCESS and its children. Never wakes the workspace.

    \b
    Examples:
      codehub ws signal api 4f1c22d0
      codehub ws signal api 4f1c22d0 KILL
    """
    with connect(server) as client:
        path = f"workspaces/{find_workspace(client, workspace)['id']}/processes/{quoted(process)}/signal"
        client.post(path, {"signal": signal.upper().removeprefix("SIG")})


@click.command()
@workspace_argument
@click.argument("path", default="")
@click.option(
    "--depth", type=click.IntRange(1, 32), default=1, show_default=True, help="How many levels of folders to list."
)
@server_option
@json_option
def files(workspace: str, path: str, depth: int, server: str | None, as_json: bool) -> None:
    """List the files in PATH, a folder of the home. The home itself by default.

    \b
    Examples:
      codehub ws files api
      codehub ws files api project/src --depth 3
    """
    items: list[dict[str, object]] = []
    with inside(server, workspace) as (client, found):
        place, after = f"workspaces/{found['id']}/files/{quoted(path)}", ""
        while True:
            page = client.get(place, list=1, depth=depth, after=after)
            items += page["items"]
            after = page.get("next", "")
            if not after:
                break
    if as_json:
        print_json({"items": items, "truncated": page["truncated"]})
        return
    rows = [[str(i["type"]), str(i["size"]), when(str(i["modified_at"])), str(i["path"])] for i in items]
    print_table(["TYPE", "SIZE", "CHANGED", "PATH"], rows)
    if page["truncated"]:
        console(err=True).print("There are more: list a folder of it, or a smaller --depth.")


@click.command("rm-file")
@workspace_argument
@click.argument("path")
@click.option("--recursive", "-r", is_flag=True, help="Delete a folder with everything in it.")
@server_option
def rm_file(workspace: str, path: str, recursive: bool, server: str | None) -> None:
    """Delete the file or the folder at PATH in the home.

    \b
    Example:
      codehub ws rm-file api project/build --recursive
    """
    with inside(server, workspace) as (client, found):
        try:
            client.delete(f"workspaces/{found['id']}/files/{quoted(path)}", recursive=int(recursive))
        except Conflict as error:
            if "recursive" in str(error):  # the API names its own parameter
                raise Conflict(f"{path} is not empty: add --recursive to delete its contents too") from None
            raise


@click.command("edit-file")
@workspace_argument
@click.argument("path")
@click.argument("old")
@click.argument("new")
@click.option("--count", type=click.IntRange(1), default=1, show_default=True, help="How often OLD must occur.")
@server_option
def edit_file(workspace: str, path: str, old: str, new: str, count: int, server: str | None) -> None:
    """Replace OLD by NEW in the file at PATH. Changes nothing unless OLD occurs exactly --count times.

    \b
    Example:
      codehub ws edit-file api .env DEBUG=0 DEBUG=1
    """
    body = {"path": path, "old": old, "new": new, "expected_count": count}
    with inside(server, workspace) as (client, found):
        client.post(f"workspaces/{found['id']}/files:edit", body)


@click.command()
@workspace_argument
@click.option("--new", "new", is_flag=True, help="Open a terminal, and print its id.")
@click.option("--close", "closed", metavar="ID", default=None, help="Close a terminal: its programs end.")
@server_option
@json_option
def terminals(workspace: str, new: bool, closed: str | None, server: str | None, as_json: bool) -> None:
    """List the terminals that the dashboard shows for a workspace. For a shell in your own terminal, use `codehub ssh`.

    \b
    Examples:
      codehub ws terminals api
      codehub ws terminals api --new
      codehub ws terminals api --close 4f1c22d0
    """
    if new and closed is not None:
        raise click.UsageError("--new and --close exclude each other.")
    with inside(server, workspace) as (client, found):
        path = f"workspaces/{found['id']}/terminals"
        if closed is not None:
            client.delete(f"{path}/{quoted(closed)}")
            return
        made = client.post(path, {}) if new else None
        items = client.get(path)["items"] if made is None else []
    if made is not None:
        print_json(made) if as_json else console().print(str(made["id"]))
    elif as_json:
        print_json({"items": items})
    else:
        rows = [[i["id"], str(i["viewers"]), f"{i['cols']}×{i['rows']}", i["command"]] for i in items]
        print_table(["ID", "VIEWERS", "SIZE", "COMMAND"], rows)


@click.command()
@workspace_argument
@_port
@click.argument("who", type=click.Choice(["owner", "users", "link"]))
@server_option
def share(workspace: str, port: int, who: str, server: str | None) -> None:
    """Choose who may open PORT: you alone, every user who is signed in, or also anyone with a link.

    \b
    Examples:
      codehub ws share api 3000 users
      codehub ws share api 3000 owner      stops sharing and ends all links
    """
    with connect(server) as client:
        path = f"workspaces/{find_workspace(client, workspace)['id']}/ports/{port}"
        shared = client.patch(path, {"share": who})["share"]
    console().print(f"Port {port}: {shared}")


@click.command()
@workspace_argument
@_port
@click.option(
    "--new", "duration", metavar="DURATION", default=None, help="Create a link that is valid for 30m, 4h or 2d."
)
@click.option("--revoke", "revoked", metavar="ID", default=None, help="Revoke a link.")
@server_option
@json_option
def links(
    workspace: str, port: int, duration: str | None, revoked: str | None, server: str | None, as_json: bool
) -> None:
    """List, create or revoke links to PORT, which is shared with `codehub ws share`. A new link is printed only once.

    \b
    Examples:
      codehub ws links api 3000 --new 4h
      codehub ws links api 3000
      codehub ws links api 3000 --revoke 4f1c22d0
    """
    if duration is not None and revoked is not None:
        raise click.UsageError("--new and --revoke exclude each other.")
    seconds = parse_duration(duration).total_seconds() if duration is not None else None
    with connect(server) as client:
        path = f"workspaces/{find_workspace(client, workspace)['id']}/ports/{port}/links"
        if revoked is not None:
            client.delete(f"{path}/{quoted(revoked)}")
            return
        made = client.post(path, {"expires_in_s": seconds}) if seconds is not None else None
        items = client.get(path)["items"] if made is None else []
    if made is not None:
        print_json(made) if as_json else click.echo(made["url"])
    elif as_json:
        print_json({"items": items})
    else:
        print_table(
            ["ID", "CREATED", "EXPIRES"], [[i["id"], when(i["created_at"]), when(i["expires_at"])] for i in items]
        )
