"""`codehub admin …`: users, recovery, undelete. Managing users needs a password (tokens cannot do it) or the database."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click

from codehub.cli.archive_all import archive_all
from codehub.cli.client import Client
from codehub.cli.credentials import Credentials
from codehub.cli.options import connect, find_workspace, json_option, server_option
from codehub.cli.output import console, print_json, print_table, when
from codehub.cli.transfer import transferred
from codehub.domain.errors import Conflict, Invalid, NotFound
from codehub.domain.units import format_amount


@click.group()
def admin() -> None:
    """Manage users, recover and undelete workspaces, read the audit trail (administrators only).

    \b
    Examples:
      codehub admin users add ada
      codehub admin recover api
      codehub admin undelete          lists what can be brought back
    """


@admin.group()
def users() -> None:
    """Manage users. Asks for your password, or reads CODEHUB_PASSWORD: tokens cannot manage users.

    \b
    Example:
      codehub admin users ls
    """


@users.command("ls")
@server_option
@json_option
def list_users(server: str | None, as_json: bool) -> None:
    """List users.

    \b
    Example:
      CODEHUB_PASSWORD=… codehub admin users ls --json
    """
    with _as_admin(server) as client:
        items = list(client.every("users"))
    if as_json:
        print_json({"items": items})
        return
    print_table(
        ["NAME", "ROLE", "SIGNS IN", "CREATED", "ID"],
        [
            [
                user["username"],
                "admin" if user["is_admin"] else "user",
                "no" if user["disabled"] else "yes",
                when(user["created_at"]),
                user["id"],
            ]
            for user in items
        ],
    )


@users.command("add")
@click.argument("username")
@click.option("--admin", "is_admin", is_flag=True, help="Make the user an administrator.")
@click.option("--password-stdin", is_flag=True, help="Read the user's password from standard input.")
@server_option
@json_option
def add_user(username: str, is_admin: bool, password_stdin: bool, server: str | None, as_json: bool) -> None:
    """Create the user USERNAME.

    \b
    Examples:
      codehub admin users add ada
      pass ada | codehub admin users add ada --password-stdin
    """
    with _as_admin(server) as client:
        password = _new_password(username, password_stdin)
        made = client.post("users", {"username": username, "password": password, "is_admin": is_admin})
    _said(made, f"{username} was created and can sign in.", as_json)


@users.command("set")
@click.argument("username")
@click.option("--admin/--no-admin", "is_admin", default=None, help="Grant or revoke administrator rights.")
@click.option("--disable/--enable", "disabled", default=None, help="Disable or enable the user.")
@click.option("--password-stdin", is_flag=True, help="Read the new password from standard input.")
@server_option
@json_option
def set_user(
    username: str,
    is_admin: bool | None,
    disabled: bool | None,
    password_stdin: bool,
    server: str | None,
    as_json: bool,
) -> None:
    """Change a user.

    \b
    Examples:
      codehub admin users set ada --admin
      codehub admin users set ada --disable
      pass ada | codehub admin users set ada --password-stdin
    """
    changes: dict[str, object] = {}
    if is_admin is not None:
        changes["is_admin"] = is_admin
    if disabled is not None:
        changes["disabled"] = disabled
    if password_stdin:
        changes["password"] = sys.stdin.readline().rstrip("\n")
    if not changes:
        raise click.UsageError("nothing to change: use --admin, --disable or --password-stdin")
    with _as_admin(server) as client:
        changed = client.patch(f"users/{_user_id(client, username)}", changes)
    _said(changed, f"{username} was updated.", as_json)


@users.command("reset")
@click.argument("username")
@click.option("--password-stdin", is_flag=True, help="Read the new password from standard input.")
def reset_user(username: str, password_stdin: bool) -> None:
    """Set a new password for USERNAME. Also ends a lock-out and all of the user's sessions.

    Does not ask for a password: it writes to the database, so it needs the data directory of a
    running `codehub up`, or CODEHUB_DATABASE_URL.

    \b
    Examples:
      codehub admin users reset admin
      pass admin | codehub admin users reset admin --password-stdin
    """
    # Loading the database code and all settings takes a quarter of a second; no other command here needs them.
    from codehub.cli.effective_settings import effective_settings
    from codehub.cli.local_users import reset_password

    url = effective_settings(os.environ).require_database()
    asyncio.run(reset_password(url, username, _new_password(username, password_stdin)))
    console().print(f"{username} can sign in with the new password.")


@users.command("rm")
@click.argument("username")
@server_option
@json_option
def remove_user(username: str, server: str | None, as_json: bool) -> None:
    """Delete a user who has no workspaces.

    \b
    Example:
      codehub admin users rm ada
    """
    with _as_admin(server) as client:
        user_id = _user_id(client, username)
        client.delete(f"users/{user_id}")
    _said({"id": user_id, "username": username, "deleted": True}, f"{username} was deleted.", as_json)


@admin.command()
@click.argument("workspace")
@server_option
@json_option
def archives(workspace: str, server: str | None, as_json: bool) -> None:
    """List the archives of a workspace, newest first. Pass one to `recover --archive-key`.

    \b
    Example:
      codehub admin archives api
    """
    with connect(server) as client:
        found = find_workspace(client, workspace, all_owners=True)
        items = list(client.get(f"workspaces/{found['id']}/archives")["items"])
    if as_json:
        print_json({"items": items})
        return
    if not items:
        console(err=True).print(f"{found['name']} has no archives.")
        return
    rows = [[when(item["committed_at"]), format_amount(int(item["bytes"])), item["archive_key"]] for item in items]
    print_table(["COMMITTED", "SIZE", "ARCHIVE KEY"], rows)


@admin.command()
@click.argument("workspace")
@click.option("--archive-key", default=None, help="Restore this archive (see `codehub admin archives`).")
@click.option("--empty-home", is_flag=True, help="Continue with an empty home. The old files are not restored.")
@server_option
@json_option
def recover(workspace: str, archive_key: str | None, empty_home: bool, server: str | None, as_json: bool) -> None:
    """Recover a workspace from ERROR. After data loss, choose what to restore.

    \b
    Examples:
      codehub admin recover api
      codehub admin recover api --archive-key 0190…/home.tar.zst
    """
    if archive_key and empty_home:
        raise click.UsageError("use either --archive-key or --empty-home")
    body: dict[str, object] = {"archive_key": archive_key} if archive_key or empty_home else {}
    with connect(server) as client:
        found = find_workspace(client, workspace, all_owners=True)
        try:
            recovered = client.post(f"workspaces/{found['id']}:recover", body)
        except Invalid as error:
            if body:
                raise
            raise Invalid(f"{error}\nChoose with --archive-key KEY or --empty-home.") from None
    _said(recovered, f"{recovered['name']} was recovered.", as_json)


@admin.command()
@click.argument("workspace_id", required=False)
@server_option
@json_option
def undelete(workspace_id: str | None, server: str | None, as_json: bool) -> None:
    """Undelete a workspace. Without WORKSPACE_ID, list the workspaces that can be undeleted.

    \b
    Examples:
      codehub admin undelete
      codehub admin undelete 019e2f4a-…
    """
    with connect(server) as client:
        if workspace_id:
            back = client.post(f"workspaces/{workspace_id}:undelete")
            _said(back, f"{back['name']} was undeleted; it is archived.", as_json)
            return
        items = list(client.every("workspaces", all=True, deleted=True))
    if as_json:
        print_json({"items": items})
    elif not items:
        console(err=True).print("There are no workspaces to undelete.")
    else:
        print_table(["NAME", "OWNER", "ID"], [[item["name"], item["owner"], item["id"]] for item in items])


@admin.command()
@click.argument("workspace")
@click.argument("username")
@server_option
@json_option
def transfer(workspace: str, username: str, server: str | None, as_json: bool) -> None:
    """Give a workspace to another user. One that is running is stopped first.

    \b
    Example:
      codehub admin transfer api ada
    """
    with connect(server) as client:
        given = transferred(client, find_workspace(client, workspace, all_owners=True), username)
    _said(given, f"{given['name']} belongs to {username} now.", as_json)


@users.command()
@click.argument("username")
@click.option(
    "--to", "heir", default=None, help="User who receives the workspaces. With --archive, it defaults to you."
)
@click.option("--archive", is_flag=True, help="Archive the workspaces first.")
@server_option
def offboard(username: str, heir: str | None, archive: bool, server: str | None) -> None:
    """Disable a user, end their sessions, transfer all their workspaces, and remove the account.

    With --archive, the workspaces are archived first. If one cannot be archived, none is transferred
    and the account stays, disabled. Fix the problem and repeat the command. The account also stays
    while workspaces that the user deleted can still be undeleted.

    \b
    Examples:
      codehub admin users offboard ada --to bob
      codehub admin users offboard ada --archive
    """
    if heir is None and not archive:
        raise click.UsageError("choose what happens to the workspaces: --to USERNAME, --archive, or both")
    with _as_admin(server) as client:
        heir = heir or str(client.get("whoami").part("user")["username"])
        if heir == username:
            raise click.UsageError(f"--to: {username} is the user who leaves; name another one")
        user_id = _user_id(client, username)
        _user_id(client, heir)
        client.patch(f"users/{user_id}", {"disabled": True})
        owned = [one for one in client.every("workspaces", all=True) if one["owner"] == username]
        if archive:
            archive_all(client, owned)
        for one in owned:
            transferred(client, one, heir)
        try:
            client.delete(f"users/{user_id}")
            now = "removed"
        except Conflict as error:
            now = f"disabled, and stays until `codehub admin users rm {username}` can remove it ({error})"
    count = "1 workspace" if len(owned) == 1 else f"{len(owned)} workspaces"
    done = "archived and transferred" if archive else "transferred"
    console().print(f"{count} {done} to {heir}. {username} is {now}.")


@admin.command()
@click.option("--since", default=None, help="Only events since then: 30m, 24h, 7d, or a date such as 2026-11-17.")
@click.option("--event", default=None, help="Only this kind of event, or a pattern: `user.*`.")
@click.option("--user", default=None, help="Only events caused by this user.")
@click.option("--workspace", default=None, help="Only events about this workspace (its id).")
@click.option("--follow", is_flag=True, help="Print events as they happen, until Ctrl-C.")
@click.option(
    "--limit", default=200, show_default=True, type=click.IntRange(1, 100_000), help="Print at most this many events."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line.")
@server_option
def audit(
    since: str | None,
    event: str | None,
    user: str | None,
    workspace: str | None,
    follow: bool,
    limit: int,
    as_json: bool,
    server: str | None,
) -> None:
    """Print the audit trail: sign-ins, tokens, users, and what administrators did. Oldest first.

    \b
    Examples:
      codehub admin audit --since 24h
      codehub admin audit --event 'sign_in.*' --json
      codehub admin audit --follow --json >> audit.jsonl
    """
    from codehub.cli.audit import print_trail, start_of

    query = {"event": event, "actor": user, "workspace_id": workspace, "since": start_of(since)}
    wanted = {name: value for name, value in query.items() if value is not None}
    with connect(server) as client:
        print_trail(client, wanted, limit=limit, follow=follow, as_json=as_json)


@contextmanager
def _as_admin(server: str | None) -> Iterator[Client]:
    """Sign in for the duration of a command."""
    credentials = Credentials(os.environ)
    address = credentials.server(server)
    kept = credentials.kept(address)
    if not sys.stdin.isatty() and not (kept and os.environ.get("CODEHUB_PASSWORD")):
        raise click.UsageError("without a terminal, sign in with `codehub login` first and set CODEHUB_PASSWORD")
    username = kept.username if kept else click.prompt("Administrator's user name", default="admin", err=True)
    password = os.environ.get("CODEHUB_PASSWORD") or click.prompt(
        f"Password of {username}", hide_input=True, err=True
    )
    with Client(address, None) as client:
        client.sign_in(username, password)
        try:
            yield client
        finally:
            client.post("logout")


def _user_id(client: Client, username: str) -> str:
    for user in client.every("users"):
        if user["username"] == username:
            return str(user["id"])
    raise NotFound(f"there is no user {username!r}; `codehub admin users ls` lists all users")


def _new_password(username: str, from_stdin: bool) -> str:
    if from_stdin:
        return sys.stdin.readline().rstrip("\n")
    if not sys.stdin.isatty():
        raise click.UsageError("without a terminal use --password-stdin")
    return str(click.prompt(f"Password for {username}", hide_input=True, confirmation_prompt=True, err=True))


def _said(answer: Any, words: str, as_json: bool) -> None:
    if as_json:
        print_json(answer)
    else:
        console().print(words)
