"""`codehub ws …`: the group, and the read-only commands. The other modules are imported when they are used."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Mapping
from typing import Any, Final

import click

from codehub.cli.answers import web_address
from codehub.cli.follow import follow
from codehub.cli.lazy_group import Entry, LazyGroup
from codehub.cli.options import connect, find_workspace, json_option, server_option, workspace_argument
from codehub.cli.output import console, doing, print_json, print_table, program_output, remedy, status_text, when
from codehub.domain.units import format_amount

_CHANGE, _INSIDE, _COPY = "codehub.cli.ws_change", "codehub.cli.ws_inside", "codehub.cli.ws_copy"
_SETUP, _DOORS = "codehub.cli.ws_setup", "codehub.cli.ws_doors"
_LONGEST_TITLE: Final = 40  # of a setup step, which may be a long command
_COMMANDS: Final[Mapping[str, Entry]] = {
    "create": (_CHANGE, "create", "Create a workspace."),
    "start": (_CHANGE, "start", "Start a workspace."),
    "stop": (_CHANGE, "stop", "Stop a workspace."),
    "restart": (_CHANGE, "restart", "Stop a workspace and start it again."),
    "archive": (_CHANGE, "archive", "Archive a workspace."),
    "cancel": (_CHANGE, "cancel", "Cancel the start, restore or archive that is under way."),
    "continue": (_CHANGE, "continue_", "Continue from the last archive while a workspace's node does not answer."),
    "edit": (_CHANGE, "edit", "Change a workspace's name, description or memo."),
    "rm": (_CHANGE, "rm", "Delete a workspace."),
    "duplicate": (_CHANGE, "duplicate", "Create a workspace with the files of another."),
    "update-template": (_CHANGE, "update_template", "Take the newest version of a workspace's template."),
    "exec": (_INSIDE, "exec_", "Run a command in a workspace."),
    "cp": (_COPY, "cp", "Copy files and folders to or from a workspace."),
    "ps": (_INSIDE, "ps", "List what was started in a workspace by exec or as a process."),
    "output": (_DOORS, "output", "Print the output of a process in a workspace."),
    "signal": (_DOORS, "signal", "Send a signal to a process in a workspace."),
    "files": (_DOORS, "files", "List the files of a workspace."),
    "rm-file": (_DOORS, "rm_file", "Delete a file or folder of a workspace."),
    "edit-file": (_DOORS, "edit_file", "Replace text in a file of a workspace."),
    "terminals": (_DOORS, "terminals", "List, open and close the terminals of a workspace."),
    "terminal": ("codehub.cli.ws_terminal", "terminal", "Open a terminal in a workspace, or attach to one."),
    "ports": (_INSIDE, "ports", "List what listens in a workspace, and where it can be opened."),
    "share": (_DOORS, "share", "Choose who may open a port of a workspace."),
    "links": (_DOORS, "links", "List, make and revoke links to a shared port."),
    "keep-awake": (_INSIDE, "keep_awake", "Keep a workspace awake for some time."),
    "setup-log": (_SETUP, "setup_log", "Print the output of a workspace's setup."),
    "retry-setup": (_SETUP, "retry_setup", "Repeat the failed steps of a workspace's setup."),
    "skip-setup": (_SETUP, "skip_setup", "Stop the step of a workspace's setup that is running."),
}


@click.group(cls=LazyGroup, entries=_COMMANDS)
def ws() -> None:
    """Manage workspaces. WORKSPACE is a name, an id, or the beginning of an id.

    \b
    Examples:
      codehub ws create api --wait     make one and wait until it runs
      codehub ws open api              open it in the browser, signed in
      codehub ws stop api              put it to sleep; its files stay
      codehub ws archive api           move its files to the archive
      codehub ws exec api -- make      run a command in it
      codehub ws ls --json | jq '.items[].name'
    """


@ws.command("ls")
@click.option("--all", "all_owners", is_flag=True, help="List all users' workspaces (administrators only).")
@click.option("--running", is_flag=True, help="List only workspaces that are running or starting.")
@server_option
@json_option
def list_(all_owners: bool, running: bool, server: str | None, as_json: bool) -> None:
    """List workspaces.

    \b
    Examples:
      codehub ws ls --running
      codehub ws ls --json | jq -r '.items[] | select(.status == "ERROR") | .name'
    """
    with connect(server) as client:
        items = list(client.every("workspaces", all=True) if all_owners else client.every("workspaces"))
    if running:
        items = [item for item in items if item["desired_state"] == "RUNNING"]
    items.sort(key=_order, reverse=True)
    if as_json:
        print_json({"items": items, "total": len(items)})
    elif not items:
        console(err=True).print("No workspaces. Create one with `codehub ws create NAME`.")
    else:
        owner = ["OWNER"] if all_owners else []
        print_table(
            ["NAME", "STATUS", "DOING", *owner, "PROFILE", "LAST USED", "ID"],
            [
                [
                    item["name"],
                    status_text(item),
                    _doing(item),
                    *([item["owner"]] if all_owners else []),
                    item["image_ref"],
                    when(item["last_access_at"]),
                    item["id"],
                ]
                for item in items
            ],
            optional=["PROFILE", "LAST USED", "DOING", "OWNER"] if all_owners else ["PROFILE", "LAST USED", "DOING"],
        )
        for item in items:
            setup = item["setup"] or {}
            failed = setup.get("text") if item["status"] == "RUNNING" and setup.get("state") == "failed" else None
            for warning in (item.get("disk_warning"), failed):
                if warning:
                    console(err=True).print(f"{item['name']}: {warning}", style="yellow")


def _doing(workspace: Mapping[str, Any]) -> str:
    """What it does now, or what its schedule does next."""
    return doing(workspace) or str((workspace.get("scheduled") or {}).get("text", ""))


def _order(workspace: Mapping[str, Any]) -> tuple[bool, str]:
    """Running ones first, then by last use, as the dashboard's cards."""
    used = workspace["last_access_at"] or workspace["created_at"]
    return workspace["status"] in ("RUNNING", "PROVISIONING", "STOPPING"), str(used)


@ws.command()
@workspace_argument
@server_option
@json_option
def show(workspace: str, server: str | None, as_json: bool) -> None:
    """Show a workspace: its state, what was observed, and what to do if something went wrong.

    \b
    Examples:
      codehub ws show api
      codehub ws show api --json | jq .conditions
    """
    with connect(server) as client:
        found = find_workspace(client, workspace)
    if as_json:
        print_json(found)
        return
    rows = [
        ("Name", found["name"]),
        ("Status", status_text(found)),
        ("Doing", doing(found) or "–"),
        *([("Schedule", found["scheduled"]["text"])] if found.get("scheduled") else []),
        ("Desired state", found["desired_state"]),
        ("Description", found["description"] or "–"),
        ("Memo", found["memo"] or "–"),
        ("Owner", found["owner"]),
        *_template(found),
        ("Profile", found["image_ref"]),
        *_repository(found),
        ("On disk", _disk(found)),
        ("Address", found["url"]),
        ("Created", when(found["created_at"])),
        ("Last used", when(found["last_access_at"])),
        ("Id", found["id"]),
    ]
    for name, condition in found["conditions"].items():
        rows.append((name, f"{condition['status']} ({condition['reason']}) {condition['message']}".strip()))
    print_table(["", ""], rows)
    if found.get("disk_warning"):
        console().print(f"\n{found['disk_warning']}", style="yellow")
    if found["error"]:
        console().print(f"\n{remedy(found)}", style="red")


def _disk(workspace: Mapping[str, Any]) -> str:
    """ "1.2 GB of 20.0 GB", "archive of 300 MB", "nothing yet", or "not measured"."""
    if workspace["status"] == "CREATED":
        return "nothing yet"
    used, limit, archive = (workspace.get(name) for name in ("disk_bytes", "disk_limit_bytes", "archive_bytes"))
    if workspace["phase"] == "ARCHIVED" and archive is not None:
        return f"archive of {format_amount(archive)}"
    most = f" of {format_amount(limit)}" if limit is not None else ""
    return f"{format_amount(used)}{most}" if used is not None else "not measured"


def _template(found: Mapping[str, Any]) -> list[tuple[str, str]]:
    template = found.get("template")
    if template is None:
        return []
    words = f"{template['name']}, version {template['version']}"
    if template["pending_version"] is not None:
        words += f", version {template['pending_version']} from the next start on"
    if template["update_available"]:
        words += f"; `codehub ws update-template {found['name']}` takes version {template['latest_version']}"
    return [("Template", words)]


def _repository(found: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the repository, and the state of its setup."""
    rows = []
    if repo := found.get("repo"):
        rows.append(("Repository", f"{repo['url']} {repo['ref']}".strip()))
    setup = found.get("setup") or {}
    for step in setup.get("steps", []):
        text = " ".join([step["state"], step["message"], *step["notes"]]).strip()
        rows.append((textwrap.shorten(step["title"], _LONGEST_TITLE, placeholder=" …"), text))
    rows += [("devcontainer.json", f"{each['key']}: {each['reason']}") for each in setup.get("ignored", [])]
    return rows


@ws.command("open")
@workspace_argument
@click.option(
    "--start/--no-start", default=True, show_default=True, help="Start the workspace first if it is not running."
)
@click.option(
    "--print", "only_print", is_flag=True, help="Print the link instead of opening it. It is valid once, for 60 s."
)
@server_option
@json_option
def open_(workspace: str, start: bool, only_print: bool, server: str | None, as_json: bool) -> None:
    """Open a workspace in the browser, signed in.

    \b
    Examples:
      codehub ws open api            starts it first if it is asleep
      codehub ws open api --print    a link for another browser: valid 60 s, once
    """
    with connect(server) as client:
        found = find_workspace(client, workspace)
        if start and found["status"] != "RUNNING":
            if "start" in found["allowed_actions"]:
                found = client.post(f"workspaces/{found['id']}:start")
            found = follow(client, found, "RUNNING", quiet=as_json) or found
        link = client.post("login-links", {"workspace_id": found["id"]})
    import webbrowser

    url = web_address(link)
    if as_json:
        print_json(link)
    elif only_print or not webbrowser.open(url):
        click.echo(url)


@ws.command()
@workspace_argument
@click.option("--follow", "-f", is_flag=True, help="Keep printing new output.")
@click.option("--tail", "-n", type=click.IntRange(min=1), default=None, help="Print only the last lines.")
@server_option
def logs(workspace: str, follow: bool, tail: int | None, server: str | None) -> None:
    """Print the output of a workspace's IDE.

    \b
    Examples:
      codehub ws logs api --tail 20
      codehub ws logs -f api    follows it until Ctrl-C
    """
    with connect(server) as client:
        found = find_workspace(client, workspace)
        query: dict[str, object] = {"follow": True} if follow else {}
        if tail is not None:
            query["tail"] = tail
        with client.lines(f"workspaces/{found['id']}/logs", **query) as pieces:
            for piece in pieces:
                sys.stdout.write(program_output(piece))
                sys.stdout.flush()


@ws.command()
@workspace_argument
@server_option
@json_option
def events(workspace: str, server: str | None, as_json: bool) -> None:
    """Show the timeline of a workspace: what changed, why, and who requested it.

    \b
    Example:
      codehub ws events api
    """
    with connect(server) as client:
        found = find_workspace(client, workspace)
        items: list[Any] = list(client.get(f"workspaces/{found['id']}/events")["items"])
    if as_json:
        print_json({"items": items})
        return
    items.sort(key=lambda item: item["at"])
    print_table(["WHEN", "WHAT", "BY"], [[when(item["at"]), item["message"], item["actor"]] for item in items])


@ws.command()
@workspace_argument
@server_option
@json_option
def usage(workspace: str, server: str | None, as_json: bool) -> None:
    """Show the CPU and memory usage of a running workspace.

    \b
    Example:
      codehub ws usage api
    """
    with connect(server) as client:
        found = find_workspace(client, workspace)
        used = client.get(f"workspaces/{found['id']}/usage")
    if as_json:
        print_json(used)
    elif used["memory_bytes"] is None and used["cpu_percent"] is None:
        console().print("Unknown: it is not running, or its backend does not measure usage.")
    else:
        limit = f" of {format_amount(int(used['memory_limit_bytes']))}" if used["memory_limit_bytes"] else ""
        print_table(
            ["CPU", "MEMORY"],
            [[f"{used['cpu_percent'] or 0:.0f} %", format_amount(int(used["memory_bytes"] or 0)) + limit]],
        )
