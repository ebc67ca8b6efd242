"""Generates the reference pages from the code: `python -m testing.docs.pages`. A test compares them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import click
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from codehub.cli.main import Exit, cli
from codehub.settings import Settings

DOCS: Final = Path(__file__).parents[2] / "docs"
# Defaults that depend on the machine are described in words, so that the page is the same everywhere.
_DEFAULTS_IN_WORDS: Final[Mapping[str, str]] = {
    "CODEHUB_DATA_DIR": "`~/.local/share/codehub`; as root `/var/lib/codehub`",
    "COORDINATOR_NODE_ID": "host name and process id",
}
_DECISIONS: Final[Mapping[str, range]] = {
    "Repository": range(50),
    "API and services": range(50, 100),
    "Control plane": range(100, 150),
    "Backends and archives": range(150, 200),
    "Workspace proxy": range(200, 250),
    "Dashboard and CLI": range(250, 300),
    "sari: daemon and shim": range(300, 320),
    "sari: index": range(320, 340),
    "sari: installation and HTTP": range(340, 400),
    "Inside the workspace": range(400, 450),
    "Other": range(450, 10_000),
}
_EXIT_WORDS: Final[Mapping[Exit, str]] = {
    Exit.DONE: "success",
    Exit.FAILED: "failure; the message says why and what to do",
    Exit.USAGE: "usage error, or an invalid value",
    Exit.UNAUTHORIZED: "not signed in; run `codehub login`",
    Exit.DENIED: "not allowed",
    Exit.NOT_FOUND: "not found",
    Exit.CONFLICT: "not possible in this state, or over a limit",
    Exit.UNREACHABLE: "the server or a service it needs does not answer, or `--timeout` expired",
    Exit.INCOMPLETE: "done, but not completely; the messages say what is missing",
    Exit.INTERRUPTED: "interrupted",
}


def configuration() -> str:
    """Return docs/configuration.md."""
    lines = [
        "# Configuration",
        "",
        "Generated from `codehub/settings` by `python -m testing.docs.pages`.",
        "",
        "Every setting is an environment variable. `CODEHUB_CONFIG_FILE` may name a TOML file with the same names as keys;",
        "environment variables take precedence over it. An empty variable counts as unset. With an invalid value CodeHub",
        "does not start; the error names the variable and what was expected. Times are in seconds or have a unit: `30s`,",
        "`10m`, `4h`, `7d`. Sizes may have a unit: `4G`.",
        "",
        "`codehub env` prints the effective settings of a running `codehub up`.",
        "",
        "| variable | default | meaning |",
        "|---|---|---|",
    ]
    for name, field in Settings.model_fields.items():
        alias = field.alias or name
        words = (field.description or "").replace("|", "\\|")
        lines.append(f"| `{alias}` | {_default(alias, field)} | {words} |")
    return "\n".join(lines) + "\n"


def _default(alias: str, field: FieldInfo) -> str:
    if alias in _DEFAULTS_IN_WORDS:
        return _DEFAULTS_IN_WORDS[alias]
    value = field.default
    if value is PydanticUndefined or value is None or value in ("", ()):
        return "–"
    return f"`{value:g}`" if isinstance(value, float) else f"`{value}`"


def command_line() -> str:
    """Return docs/cli.md."""
    lines = [
        "# Command line",
        "",
        "Generated from the help texts of the commands by `python -m testing.docs.pages`.",
        "",
        "Commands print tables and progress bars; `--json` prints JSON for scripts. Progress goes to standard error,",
        'results to standard output. `eval "$(codehub completion bash)"` completes commands and names of workspaces in',
        "your shell.",
        "",
        "## Exit codes",
        "",
        "| code | meaning |",
        "|---|---|",
        *[f"| {code.value} | {_EXIT_WORDS[code]} |" for code in Exit],
        "",
    ]
    for path, command in commands():
        context = click.Context(
            command, info_name=" ".join(("codehub", *path)), terminal_width=100, max_content_width=100,
            **cli.context_settings,
        )  # fmt: skip
        lines += [f"## codehub {' '.join(path)}", "", "```text", command.get_help(context).rstrip(), "```", ""]
    return "\n".join(lines)


def commands() -> list[tuple[tuple[str, ...], click.Command]]:
    """Return every command with the words that a user types for it."""
    context = click.Context(cli)
    found = []
    for name in cli.list_commands(context):
        command = cli.get_command(context, name)
        assert command is not None, name
        found += _leaves(command, (name,))
    return sorted(found, key=lambda each: each[0])


def _leaves(command: click.Command, path: tuple[str, ...]) -> list[tuple[tuple[str, ...], click.Command]]:
    if not isinstance(command, click.Group):
        return [(path, command)]
    found: list[tuple[tuple[str, ...], click.Command]] = []
    context = click.Context(command)
    for name in command.list_commands(context):
        below = command.get_command(context, name)
        assert below is not None, name
        found += _leaves(below, (*path, name))
    return found


def decisions() -> str:
    """Return docs/adr/index.md."""
    lines = [
        "# Decisions",
        "",
        "Generated from the records in this folder by `python -m testing.docs.pages`.",
        "",
        "There is one page for each decision that would surprise a reader: date, status, context, decision, consequences",
        "and alternatives. A decision that no longer holds is marked as superseded, not removed.",
    ]
    for title, numbers in _DECISIONS.items():
        rows = [
            f"| [{path.name[:4]}]({path.name}) | {heading.partition('. ')[2]} |"
            for path in sorted((DOCS / "adr").glob("[0-9]*.md"))
            if int(path.name[:4]) in numbers
            for heading in [path.read_text(encoding="utf-8").partition("\n")[0]]
        ]
        if rows:
            lines += ["", f"## {title}", "", "| number | decision |", "|---|---|", *rows]
    return "\n".join(lines) + "\n"


PAGES: Final[Mapping[str, Callable[[], str]]] = {
    "configuration.md": configuration,
    "cli.md": command_line,
    "adr/index.md": decisions,
}


def main() -> None:
    DOCS.mkdir(exist_ok=True)
    for name, draw in PAGES.items():
        (DOCS / name).write_text(draw(), encoding="utf-8")
        click.echo(f"wrote docs/{name}")


if __name__ == "__main__":
    main()
