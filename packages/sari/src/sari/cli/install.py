"""`sari install` and `sari uninstall`: show the change to each client's configuration, then write it."""

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
        parser.set_defaults(run=work)


def _install(arguments: argparse.Namespace) -> int:
    from datetime import UTC, datetime

    from sari.install import environment as installed
    from sari.install.change import install, plan_install

    launch = installed.launch(os.environ)
    receipts = installed.receipts(os.environ)

    def write(client: Client, path: Path) -> Change:
        return install(client, path, launch, receipts, datetime.now(UTC))

    code = _each(arguments, lambda client, path: plan_install(client, path, launch), write)
    if arguments.scope == "project" and code == 0:
        print(f"These files belong to the project and name {launch.command}, a path on this machine.")
    return code


def _uninstall(arguments: argparse.Namespace) -> int:
    from datetime import UTC, datetime

    from sari.install import environment as installed
    from sari.install.change import plan_uninstall, uninstall

    receipts = installed.receipts(os.environ)
    return _each(
        arguments,
        lambda client, path: plan_uninstall(client, path, receipts),
        lambda client, path: uninstall(client, path, receipts, datetime.now(UTC)),
    )


def _each(
    arguments: argparse.Namespace, plan: Callable[[Client, Path], Change], write: Callable[[Client, Path], Change]
) -> int:
    """Show every change first, then write them. A file that is refused does not stop the others."""
    from pathlib import Path

    from sari.install import environment as installed
    from sari.install.clients import CLIENTS, Scope
    from sari.install.errors import InstallError

    machine = installed.machine(os.environ)
    start = Path(arguments.workspace).absolute() if arguments.workspace else Path.cwd()
    project = start if arguments.workspace else installed.project_root(start)
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
        print(f"Backups of the previous files: {installed.data_folder(os.environ) / 'install' / 'backups'}")
    return 1 if refused else 0
