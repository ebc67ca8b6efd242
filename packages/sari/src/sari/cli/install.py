"""`sari install` and `sari uninstall`: show the change to each client's configuration, then write it."""

from __future__ import annotations

import argparse
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from sari.cli.types import Subparsers
    from sari.install.change import Change
    from sari.install.clients import Client

HOSTS = ("codex", "gemini", "claude", "cursor", "vscode")


def register(subparsers: Subparsers) -> None:
    for name, what, work in (
        ("install", "add sari to the configuration of AI clients", _install),
        ("uninstall", "remove sari from the configuration of AI clients", _uninstall),
    ):
        parser = subparsers.add_parser(name, help=what, description=what.capitalize() + ".")
        parser.add_argument("--host", required=True, choices=[*HOSTS, "all"], help="the client to configure")
        parser.add_argument("--scope", choices=["user", "project"], default="user", help="the configuration to edit")
        parser.add_argument(
            "--workspace",
            metavar="DIR",
            help="the project for --scope project (default: found from the current directory)",
        )
        parser.add_argument("--dry-run", action="store_true", help="show the change without writing it")
        if work is _install:
            parser.add_argument(
                "--instructions",
                action=argparse.BooleanOptionalAction,
                help="add a paragraph about sari to AGENTS.md, CLAUDE.md or GEMINI.md (default: ask in a terminal)",
            )
        parser.set_defaults(run=work)


def _install(arguments: argparse.Namespace) -> int:
    from datetime import UTC, datetime

    from sari.install import environment as installed
    from sari.install.change import install, plan_install

    launch = installed.launch(os.environ)
    receipts = installed.receipts(os.environ)

    def plan(client: Client, path: Path, within: Path | None) -> Change:
        return plan_install(client, path, launch, within)

    def write(client: Client, path: Path, within: Path | None) -> Change:
        return install(client, path, launch, receipts, datetime.now(UTC), within)

    code = _each(arguments, plan, write)
    if _wants_instructions(arguments):
        code = max(code, _each(arguments, plan, write, guidance=True))
    if arguments.scope == "project" and code == 0:
        print(f"These files belong to the project and name {launch.command}, a path on this machine.")
    return code


def _wants_instructions(arguments: argparse.Namespace) -> bool:
    """Return the option's value. Without the option, show the paragraph and prompt on a terminal; in a script, return
    False.
    """
    from sari.install.guidance import GUIDANCE, PARAGRAPH

    if arguments.host != "all" and arguments.host not in GUIDANCE:
        return False
    if arguments.instructions is not None:
        return bool(arguments.instructions)
    if arguments.dry_run or not (sys.stdin.isatty() and sys.stdout.isatty()):
        return False
    print(f"\nClients use sari more often when their instructions file says so:\n\n  {PARAGRAPH}\n")
    try:
        return input("Add this paragraph? [y/N] ").strip().lower() in ("y", "yes")
    except EOFError:
        return False


def _uninstall(arguments: argparse.Namespace) -> int:
    from datetime import UTC, datetime

    from sari.install import environment as installed
    from sari.install.change import plan_uninstall, uninstall

    receipts = installed.receipts(os.environ)

    def plan(client: Client, path: Path, within: Path | None) -> Change:
        return plan_uninstall(client, path, receipts, within)

    def write(client: Client, path: Path, within: Path | None) -> Change:
        return uninstall(client, path, receipts, datetime.now(UTC), within)

    return max(_each(arguments, plan, write), _each(arguments, plan, write, guidance=True))


def _each(
    arguments: argparse.Namespace,
    plan: Callable[[Client, Path, Path | None], Change],
    write: Callable[[Client, Path, Path | None], Change],
    *,
    guidance: bool = False,
) -> int:
    """Show every change first, then write them. A file that is refused does not stop the others."""
    from pathlib import Path

    from sari.install import environment as installed
    from sari.install.clients import CLIENTS, Scope
    from sari.install.errors import InstallError
    from sari.install.guidance import GUIDANCE

    clients: Mapping[str, Client] = GUIDANCE if guidance else CLIENTS
    machine = installed.machine(os.environ)
    start = Path(arguments.workspace).absolute() if arguments.workspace else Path.cwd()
    project = start if arguments.workspace else installed.project_root(start)
    # A project's links may not lead out of it. The user's own may: dotfile managers make them.
    within = project if arguments.scope == Scope.PROJECT else None
    wanted: list[Change] = []
    refused = 0
    for name in HOSTS if arguments.host == "all" else (arguments.host,):
        if name not in clients:
            continue
        client = clients[name]
        path = client.file(Scope(arguments.scope), machine, project)
        try:
            change = plan(client, path, within)
        except InstallError as error:
            refused += 1
            print(f"{client.title}: {error}", file=sys.stderr)
            continue
        if change.needed:
            print(f"{client.title}: {change.path}\n{change.shown()}")
            wanted.append(change)
        elif not guidance:
            print(f"{client.title}: {change.path}: nothing to change")
    for change in () if arguments.dry_run else wanted:
        try:
            write(change.client, change.path, within)
            print(f"{change.client.title}: {'removed' if change.after is None else 'written'} {change.path}")
        except InstallError as error:
            refused += 1
            print(f"{change.client.title}: {error}", file=sys.stderr)
    if guidance and not wanted:
        return 1 if refused else 0
    if arguments.dry_run:
        print("Nothing was written (--dry-run).")
    elif wanted and refused < len(wanted):
        print(f"Backups of the previous files: {installed.data_folder(os.environ) / 'install' / 'backups'}")
    return 1 if refused else 0
