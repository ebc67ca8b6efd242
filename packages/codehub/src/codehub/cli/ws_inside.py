"""The `codehub ws` commands inside a workspace: exec, cp, ps, ports, keep-awake. Each wakes a sleeping workspace."""

from __future__ import annotations

import json
import os
import posixpath
import re
import sys
import tarfile
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import quote

import click

from codehub.cli.client import Client
from codehub.cli.follow import follow_setup
from codehub.cli.options import (
    connect,
    find_workspace,
    json_option,
    server_option,
    workspace_argument,
    workspace_before_command,
)
from codehub.cli.output import console, print_json, print_table, program_output, when
from codehub.domain.errors import Conflict, Invalid, NotFound
from codehub.workspaced import tars

_CHUNK = 256 << 10
# The coordinator sees a retry within a second; a step may fail again immediately and look unchanged.
_SETUP_BEGINS_S = 5.0
_DURATION = re.compile(r"(\d+)([mhd])")
_UNITS = {"m": "minutes", "h": "hours", "d": "days"}


@click.command("exec", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@workspace_before_command
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
@click.option("--cwd", default=None, help="Working directory, relative to the home.")
@click.option("--env", "env", multiple=True, metavar="NAME=VALUE", help="Set a variable; may be repeated.")
@click.option("--stdin", "with_stdin", is_flag=True, help="Send standard input (up to 512 KB).")
@click.option("--timeout", "timeout_s", type=float, default=None, help="End it after this many seconds.")
@click.option("--detach", "-d", is_flag=True, help="Print its process id instead of waiting for it.")
@server_option
def exec_(
    workspace: str,
    command: tuple[str, ...],
    cwd: str | None,
    env: tuple[str, ...],
    with_stdin: bool,
    timeout_s: float | None,
    detach: bool,
    server: str | None,
) -> None:
    """Run a command in a workspace and pass on its output and exit code. Ctrl-C ends it.

    \b
    Examples:
      codehub ws exec api -- make test
      codehub ws exec api -- sh -c 'cd src && ls'
      codehub ws exec --detach api -- ./train.sh     keeps running; `codehub ws ps api` shows it
    """
    # Click ends the options at the workspace's name and passes a following `--` on.
    words = command[1:] if command[0] == "--" else command
    if not words:
        raise click.UsageError("Missing argument 'COMMAND...'.")
    body: dict[str, object] = {
        "command": list(words),
        "env": dict(_variable(each) for each in env),
        "wait": not detach,
        "kill_on_disconnect": not detach,
    }
    if cwd is not None:
        body["cwd"] = cwd
    if timeout_s is not None:
        body["timeout_s"] = timeout_s
    if with_stdin:
        body["stdin"] = sys.stdin.read()
    with connect(server) as client:
        path = f"workspaces/{find_workspace(client, workspace)['id']}/exec"
        if detach:
            console().print(str(client.post(path, body)["process_id"]))
            return
        code = _streamed(client, path, body)
    raise click.exceptions.Exit(1 if code is None else code)


def _variable(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise Invalid(f"--env {text!r}: write NAME=VALUE")
    return name, value


def _streamed(client: Client, path: str, body: dict[str, object]) -> int | None:
    code: int | None = None
    headers = {"Accept": "application/x-ndjson"}
    with client.streaming("POST", path, json=body, headers=headers) as response:
        for line in response.iter_lines():
            piece = json.loads(line)
            if "stream" in piece:
                target = sys.stdout if piece["stream"] == "stdout" else sys.stderr
                target.write(piece["data"])
                target.flush()
            elif "exit_code" in piece:
                code = piece["exit_code"]
    return code


@click.command()
@click.argument("source")
@click.argument("target")
@server_option
def cp(source: str, target: str, server: str | None) -> None:
    """Copy files and folders to or from a workspace. One side is `WORKSPACE:PATH`, relative to its home.

    \b
    Examples:
      codehub ws cp notes.txt api:            into the home, under the same name
      codehub ws cp src api:project/src       a folder with its contents
      codehub ws cp api:build/report.pdf .
    """
    up, down = _remote(target), _remote(source)
    if (up is None) == (down is None):
        raise Invalid("one of the two must be WORKSPACE:PATH, and the other a path here")
    with connect(server) as client:
        if up is not None:
            _upload(client, Path(source), *_place(client, up))
        elif down is not None:
            _download(client, *_place(client, down), Path(target))


def _remote(text: str) -> tuple[str, str] | None:
    """Return (workspace, path), parsed like scp: a colon before any slash."""
    name, colon, path = text.partition(":")
    return (name, path) if colon and name and "/" not in name else None


def _place(client: Client, remote: tuple[str, str]) -> tuple[str, str]:
    found = find_workspace(client, remote[0])
    return f"workspaces/{found['id']}/files/", remote[1]


def _upload(client: Client, source: Path, files: str, path: str) -> None:
    if not source.exists():
        raise NotFound(f"{source} is not there")
    if path in ("", ".") or path.endswith("/") or _is_folder(client, files, path):
        path = posixpath.join(path, source.resolve().name)
    if source.is_dir():
        headers = {"Content-Type": "application/x-tar"}
        client.put(files + quote(path), _packed(source), **headers)
    else:
        with source.open("rb") as file:
            client.put(
                files + quote(path) + f"?mode={source.stat().st_mode & 0o777:03o}",
                iter(lambda: file.read(_CHUNK), b""),
                **{"Content-Length": str(source.stat().st_size)},
            )
    console(err=True).print(f"{source} → {path}")


def _is_folder(client: Client, files: str, path: str) -> bool:
    parent, name = posixpath.split(path.rstrip("/"))
    try:
        listed = client.get(files + quote(parent), list=True)["items"]
    except (NotFound, Invalid):
        return False
    return any(item["path"] == name and item["type"] == "directory" for item in listed)


def _packed(source: Path) -> Iterator[bytes]:
    """Yield a folder as tar, created by a thread while it is sent."""
    read_fd, write_fd = os.pipe()
    failed: list[BaseException] = []

    def pack() -> None:
        try:
            with os.fdopen(write_fd, "wb") as pipe, tarfile.open(fileobj=pipe, mode="w|") as archive:
                for entry in sorted(source.iterdir()):
                    archive.add(entry, entry.name)
        except OSError as error:
            failed.append(error)

    thread = threading.Thread(target=pack, daemon=True)
    thread.start()
    with os.fdopen(read_fd, "rb") as pipe:
        while data := pipe.read(_CHUNK):
            yield data
    thread.join()
    if failed:
        raise Conflict(f"{source} could not be read: {failed[0]}")


def _download(client: Client, files: str, path: str, target: Path) -> None:
    if target.is_dir():
        target = target / (posixpath.basename(path.rstrip("/")) or "home")
    with client.download(files + quote(path)) as response:
        if response.headers.get("content-type") == "application/x-tar":
            target.mkdir(parents=True, exist_ok=True)
            _unpack(response.iter_bytes(_CHUNK), target)
        else:
            partial = target.with_name(target.name + ".part")
            with partial.open("wb") as file:
                for data in response.iter_bytes(_CHUNK):
                    file.write(data)
            partial.replace(target)
    console(err=True).print(f"{path} → {target}")


def _unpack(pieces: Iterator[bytes], target: Path) -> None:
    """Unpack what a workspace sends. It may be hostile, and the filter of older Pythons' tarfile can be escaped."""
    outward: list[str] = []
    try:
        tars.unpack(_Reader(pieces), str(target), "r|", outward)
    except (tarfile.TarError, ValueError, EOFError) as error:
        raise Conflict(f"the workspace sent no usable archive, and nothing was written: {error}") from error
    if outward:
        some = ", ".join(outward[:3]) + (", …" if len(outward) > 3 else "")
        console(err=True).print(f"{len(outward)} links that lead out of the folder were left out: {some}")


class _Reader:
    """Presents chunks as a file that tarfile can read."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._rest = b""

    def read(self, size: int, /) -> bytes:
        while len(self._rest) < size:
            piece = next(self._pieces, b"")
            if not piece:
                break
            self._rest += piece
        data, self._rest = self._rest[:size], self._rest[size:]
        return data


@click.command()
@workspace_argument
@server_option
@json_option
def ps(workspace: str, server: str | None, as_json: bool) -> None:
    """List the processes started in a workspace by `exec`.

    \b
    Example:
      codehub ws ps api
    """
    with connect(server) as client:
        items = client.get(f"workspaces/{find_workspace(client, workspace)['id']}/processes")["items"]
    if as_json:
        print_json({"items": items})
        return
    print_table(
        ["ID", "STATE", "EXIT", "CPU", "STARTED", "COMMAND"],
        [
            [
                item["id"],
                item["state"],
                "" if item["exit_code"] is None else str(item["exit_code"]),
                f"{item['cpu_percent']:.0f} %",
                when(item["started_at"]),
                item["command"],
            ]
            for item in items
        ],
    )


@click.command()
@workspace_argument
@server_option
@json_option
def ports(workspace: str, server: str | None, as_json: bool) -> None:
    """List the listening ports of a workspace and their URLs.

    \b
    Example:
      codehub ws ports api
    """
    with connect(server) as client:
        items = client.get(f"workspaces/{find_workspace(client, workspace)['id']}/ports")["items"]
    if as_json:
        print_json({"items": items})
        return
    rows = [[str(item["port"]), item["process"] or "–", item["share"], item["url"]] for item in items]
    print_table(["PORT", "PROCESS", "SHARED WITH", "ADDRESS"], rows)


@click.command("keep-awake")
@workspace_argument
@click.argument("duration")
@server_option
@json_option
def keep_awake(workspace: str, duration: str, server: str | None, as_json: bool) -> None:
    """Keep a workspace awake for DURATION (30m, 4h, 2d), even if nothing runs in it; `off` ends it.

    \b
    Examples:
      codehub ws keep-awake api 4h
      codehub ws keep-awake api off
    """
    until = None if duration == "off" else (datetime.now(UTC) + parse_duration(duration)).isoformat()
    with connect(server) as client:
        found = client.post(f"workspaces/{find_workspace(client, workspace)['id']}:keep-awake", {"until": until})
    if as_json:
        print_json(found)
    else:
        text = "may go to sleep again" if until is None else f"stays awake until {when(found['keep_awake_until'])}"
        console().print(f"{found['name']} {text}.")


def parse_duration(text: str) -> timedelta:
    match = _DURATION.fullmatch(text)
    if match is None or int(match[1]) == 0:
        raise Invalid(f"{text!r} is not a duration: write 30m, 4h or 2d")
    return timedelta(**{_UNITS[match[2]]: int(match[1])})


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
