"""`sari install` and `sari uninstall`: show each client's difference, then write it."""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from sari.cli.types import Subparsers
    from sari.install.change import Change
    from sari.install.clients import Client

HOSTS = ("codex", "gemini", "claude", "cursor", "vscode")


def register(subparsers: Subparsers) -> None:
    for name, what, work in (
        ("install", "give AI clients sari: edit their configuration", _install),
        ("uninstall", "take sari out of AI clients' configuration again", _uninstall),
    ):
        parser = subparsers.add_parser(name, help=what, description=what.capitalize() + ".")
        parser.add_argument("--host", required=True, choices=[*HOSTS, "all"], help="which client")
        parser.add_argument("--scope", choices=["user", "project"], default="user", help="whose configuration")
        parser.add_argument(
            "--workspace", metavar="DIR", help="the project for --scope project (else found from here)"
        )
        parser.add_argument("--dry-run", action="store_true", help="show the difference, write nothing")
        parser.set_defaults(run=work)


def _install(arguments: argparse.Namespace) -> int:
    from datetime import UTC, datetime

    from sari.install import places
    from sari.install.change import install, plan_install

    launch = places.launch(os.environ)
    receipts = places.receipts(os.environ)

    def write(client: Client, path: Path) -> Change:
        return install(client, path, launch, receipts, datetime.now(UTC))

    code = _each(arguments, lambda client, path: plan_install(client, path, launch), write)
    if arguments.scope == "project" and code == 0:
        print(f"These files are the project's: they name {launch.command}, which is a path of this machine.")
    return code


def _uninstall(arguments: argparse.Namespace) -> int:
    from datetime import UTC, datetime

    from sari.install import places
    from sari.install.change import plan_uninstall, uninstall

    receipts = places.receipts(os.environ)
    return _each(
        arguments,
        lambda client, path: plan_uninstall(client, path, receipts),
        lambda client, path: uninstall(client, path, receipts, datetime.now(UTC)),
    )


def _each(
    arguments: argparse.Namespace, plan: Callable[[Client, Path], Change], write: Callable[[Client, Path], Change]
) -> int:
    """Show every difference first, then write them; one file that is refused stops no other."""
    from pathlib import Path

    from sari.install import places
    from sari.install.clients import CLIENTS, Scope
    from sari.install.errors import InstallError

    machine = places.machine(os.environ)
    start = Path(arguments.workspace).absolute() if arguments.workspace else Path.cwd()
    project = start if arguments.workspace else places.project_root(start)
    wanted: list[Change] = []
    refused = 0
    for name in HOSTS if arguments.host == "all" else (arguments.host,):
        client = CLIENTS[name]
        path = client.file(Scope(arguments.scope), machine, project)
        try:
            change = plan(client, path)
        except InstallError as error:
            refused += 1
            print(f"{client.title}: {error}", file=sys.stderr)
            continue
        if change.needed:
            print(f"{client.title}: {change.path}\n{change.shown()}")
            wanted.append(change)
        else:
            print(f"{client.title}: {change.path}: nothing to change")
    for change in () if arguments.dry_run else wanted:
        try:
            write(change.client, change.path)
            print(f"{change.client.title}: {'removed' if change.after is None else 'written'} {change.path}")
        except InstallError as error:
            refused += 1
            print(f"{change.client.title}: {error}", file=sys.stderr)
    if arguments.dry_run:
        print("Nothing was written (--dry-run).")
    elif wanted and refused < len(wanted):
        print(f"Backups of what was there: {places.data_folder(os.environ) / 'install' / 'backups'}")
    return 1 if refused else 0
