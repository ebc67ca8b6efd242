"""`codehub templates …`: push, list, show and archive templates."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any
from urllib.parse import quote

import click

from codehub.cli.client import Json
from codehub.cli.options import connect, json_option, server_option
from codehub.cli.output import console, print_json, print_table, program_output, when
from codehub.cli.parameters import given_parameters, parameter_option
from codehub.domain.errors import Conflict, Invalid
from codehub.domain.units import shown_bytes, shown_duration

# With a leading slash: a colon in the first part of a relative URL would end a scheme.
_PREVIEW = "/templates:preview"
_NEWER = (
    "`codehub templates show NAME --diff` shows what it changed. Merge that into your file and push it with "
    "`--base NAME=VERSION`, or replace it with `--force`."
)


@click.group()
def templates() -> None:
    """Manage templates: what workspaces are made from.

    \b
    Examples:
      codehub templates push web.toml
      codehub templates ls
      codehub ws create shop --template web --param node=22
    """


@templates.command()
@click.argument("file", type=click.File("r", encoding="utf-8"))
@click.option("--check", is_flag=True, help="Only check the file; push nothing.")
@click.option(
    "--base",
    "base",
    multiple=True,
    metavar="NAME=VERSION",
    help="The version that the file is based on; refused if there is a newer one. May be repeated.",
)
@click.option("--force", is_flag=True, help="Push even if somebody else pushed the newest version.")
@server_option
@json_option
def push(file: Any, check: bool, base: tuple[str, ...], force: bool, server: str | None, as_json: bool) -> None:
    """Push the templates of the TOML file FILE ("-" for standard input); administrators only.

    Each template that changed gets a new version. Nothing is pushed if the file has a mistake, or if another
    administrator pushed the newest version. In that case merge it and pass it as --base, or use --force.

    \b
    Examples:
      codehub templates push web.toml
      codehub templates push web.toml --base web=4
      codehub templates push --check web.toml
    """
    try:
        source = file.read()
    except UnicodeDecodeError as error:
        raise Invalid(f"{file.name} is not text in UTF-8: {error}") from error
    with connect(server) as client:
        if check:
            items = client.post(_PREVIEW, {"source": source})["items"]
            _fail_on(problem for item in items for problem in item["problems"] if problem["line"] is not None)
        else:
            body = {"source": source, "base": _versions(base), "force": force}
            try:
                items = client.post("templates", body)["items"]
            except Conflict as error:
                raise Conflict(f"{error}\n{_NEWER}") from error
    if as_json:
        print_json({"items": items})
        return
    for item in items:
        if check:
            console().print(f"{item['name']}: fine")
        else:
            news = "pushed" if item["new"] else "unchanged"
            console().print(f"{item['name']}: {news}, version {item['version']}")


@templates.command("ls")
@click.option("--archived", is_flag=True, help="Include archived templates (administrators only).")
@server_option
@json_option
def list_(archived: bool, server: str | None, as_json: bool) -> None:
    """List the templates that you may use. Profiles are templates without a version.

    \b
    Example:
      codehub templates ls
    """
    with connect(server) as client:
        items = client.get("templates", **({"archived": True} if archived else {}))["items"]
    if as_json:
        print_json({"items": items})
        return
    print_table(
        ["NAME", "VERSION", "FOR", "WORKSPACES", "PARAMETERS", "DESCRIPTION"],
        [
            [
                item["name"] + (" (archived)" if item["archived_at"] else ""),
                str(item["version"] or "profile"),
                item["access"],
                "–" if item["workspaces"] is None else str(item["workspaces"]),
                ", ".join(parameter["name"] for parameter in item["parameters"]) or "–",
                item["description"],
            ]
            for item in items
        ],
        optional=["DESCRIPTION", "PARAMETERS"],
    )


@templates.command()
@click.argument("name")
@click.option("--version", "version", type=click.IntRange(min=1), default=None, help="Show this version of its text.")
@click.option("--diff", is_flag=True, help="Show what a version changed.")
@click.option("--source", is_flag=True, help="Print only the TOML text (administrators only).")
@server_option
@json_option
def show(name: str, version: int | None, diff: bool, source: bool, server: str | None, as_json: bool) -> None:
    """Show a template and its parameters; for administrators also its text and versions.

    \b
    Examples:
      codehub templates show web
      codehub templates show web --source > web.toml
      codehub templates show web --version 3 --diff
    """
    with connect(server) as client:
        found = client.get(_path(name))
        if version is not None or diff:
            text = client.get(_path(name, f"/versions/{version or found['version']}"))
            if as_json:
                print_json(text)
            else:
                sys.stdout.write(program_output(str(text["diff"] if diff else text["source"])))
            return
        is_admin = found["source"] is not None
        versions = client.get(_path(name, "/versions"))["items"] if is_admin else []
    if as_json:
        print_json({**found, "versions": versions})
    elif source:
        if not is_admin:
            raise Invalid(f"{name} has no text that you may read")
        sys.stdout.write(program_output(str(found["source"])))
    else:
        _show(found, versions)


@templates.command()
@click.argument("name_or_file")
@parameter_option
@click.option(
    "--runtime",
    type=click.Choice(["process", "docker", "kubernetes"]),
    default=None,
    help="Show it for this runtime instead of the installation's.",
)
@server_option
@json_option
def preview(
    name_or_file: str, parameters: tuple[str, ...], runtime: str | None, server: str | None, as_json: bool
) -> None:
    """Show what a workspace created from a template would get. You can preview a .toml file before you push it.

    \b
    Examples:
      codehub templates preview web --param node=20
      codehub templates preview web.toml --runtime kubernetes
    """
    with connect(server) as client:
        body: dict[str, object] = {} if runtime is None else {"runtime": runtime}
        if name_or_file.endswith(".toml"):
            with click.open_file(name_or_file, encoding="utf-8") as file:
                body["source"] = file.read()
            known = [each for item in _previewed(client, body) for each in item["parameters"]]
        else:
            body["name"] = name_or_file
            known = client.get(_path(name_or_file))["parameters"]
        items = _previewed(client, {**body, "parameters": given_parameters(parameters, known)})
    if as_json:
        print_json({"items": items})
        return
    _fail_on(problem for item in items for problem in item["problems"])
    for item in items:
        _show_resolved(item)


@templates.command()
@click.argument("name")
@server_option
def archive(name: str, server: str | None) -> None:
    """Archive a template, so that it is no longer offered (administrators only).

    Refused while workspaces use it. Pushing it again restores it.

    \b
    Example:
      codehub templates archive old-web
    """
    with connect(server) as client:
        client.post(_path(name, ":archive"))
    console().print(f"{name}: archived")


def _versions(given: tuple[str, ...]) -> dict[str, int]:
    found = {}
    for each in given:
        name, _, version = each.partition("=")
        if not name or not version.isascii() or not version.isdigit() or len(version) > 9:
            raise Invalid(f"--base {each}: write NAME=VERSION, such as web=4")
        found[name] = int(version)
    return found


def _path(name: str, rest: str = "") -> str:
    return f"templates/{quote(name, safe='')}{rest}"


def _previewed(client: Any, body: Mapping[str, object]) -> list[Json]:
    return list(client.post(_PREVIEW, body)["items"])


def _fail_on(problems: Iterable[Json]) -> None:
    lines = []
    for each in problems:
        place = f"line {each['line']}: " if each["line"] is not None else ""
        lines.append(f"{place}{each['where']}: {each['message']}" if each["where"] else f"{place}{each['message']}")
    if lines:
        raise Invalid("\n".join(lines))


def _show(found: Json, versions: list[Json]) -> None:
    rows = [
        ("Name", found["name"]),
        ("Version", str(found["version"] or "profile")),
        ("For", found["access"]),
        ("Description", found["description"] or "–"),
        ("Repository", found["repo"] or "–"),
    ]
    if found["workspaces"] is not None:
        rows.append(("Workspaces", str(found["workspaces"])))
    print_table(["", ""], rows)
    if found["parameters"]:
        click.echo()
        print_table(
            ["PARAMETER", "TYPE", "DEFAULT", "ALLOWED", "DESCRIPTION"],
            [
                [
                    each["name"],
                    each["type"],
                    "required" if each["required"] else str(each["default"]),
                    _allowed(each),
                    each["description"],
                ]
                for each in found["parameters"]
            ],
        )
    if versions:
        click.echo()
        print_table(
            ["VERSION", "PUSHED", "BY"],
            [[str(each["version"]), when(each["created_at"]), each["created_by"]] for each in versions],
        )


def _allowed(parameter: Json) -> str:
    if parameter["choices"]:
        return ", ".join(parameter["choices"])
    bounds = [f"from {parameter['min']:g}" if parameter["min"] is not None else ""]
    bounds.append(f"to {parameter['max']:g}" if parameter["max"] is not None else "")
    return parameter["pattern"] or " ".join(part for part in bounds if part) or "–"


def _span(seconds: float | None) -> str:
    return "as installed" if seconds is None else shown_duration(timedelta(seconds=seconds))


def _show_resolved(item: Json) -> None:
    got = item["resolved"]
    size = got["size"]
    rows = [
        ("Template", item["name"]),
        ("Profile", got["profile"]),
        ("Runs", got["image_ref"]),
        ("CPUs", f"{size['cpus']:g}" if size["cpus"] is not None else "as installed"),
        ("Memory", shown_bytes(size["memory_bytes"]) if size["memory_bytes"] else "as installed"),
        ("Disk", shown_bytes(size["disk_bytes"]) if size["disk_bytes"] else "as installed"),
        (
            "Repository",
            " ".join(part for part in (got["repo_url"], got["repo_ref"], got["repo_path"]) if part) or "–",
        ),
        ("Ports", ", ".join(map(str, got["ports"])) or "–"),
        ("Sleeps after", _span(got["ttl_standby_seconds"])),
        ("Archived after", _span(got["ttl_archive_seconds"])),
        ("Schedule", got["schedule"] or "–"),
    ]
    rows += [("Env", f"{name}={value}") for name, value in got["env"].items()]
    rows += [("Setup", command) for command in got["setup"]]
    rows += [("Note", note) for note in item["notes"]]
    print_table(["", ""], rows)
