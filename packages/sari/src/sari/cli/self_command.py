"""`sari self uninstall`: removes sari from the clients' configuration, stops the daemon and removes the program.

Keeps the registry and the indexes.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from sari.cli.types import Subparsers


def register(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser("self", help="manage this installation: `sari self uninstall`")
    inner = parser.add_subparsers(dest="self_command", metavar="COMMAND", required=True)
    what = "remove sari from the clients, stop its daemon and remove the program"
    uninstall = inner.add_parser("uninstall", help=what, description=what.capitalize() + ".")
    uninstall.set_defaults(run=_uninstall)


def _uninstall(arguments: argparse.Namespace) -> int:
    from datetime import UTC, datetime
    from pathlib import Path

    from sari.install import environment as installed
    from sari.install.application import own_application
    from sari.install.change import uninstall
    from sari.install.clients import CLIENTS
    from sari.install.errors import InstallError
    from sari.install.guidance import by_receipt
    from sari.registry.programs import python_command

    receipts, machine = installed.receipts(os.environ), installed.machine(os.environ)
    refused = False
    for receipt in receipts.all():
        client = CLIENTS.get(receipt.client) or by_receipt(receipt.client)
        if client is None:
            continue
        try:
            path = Path(receipt.path)
            uninstall(client, path, receipts, datetime.now(UTC), client.project_of(path, machine))
            print(f"{client.title}: sari removed from {receipt.path}", flush=True)
        except InstallError as error:
            refused = True
            print(f"{client.title}: {error}", file=sys.stderr)
    # Run this in a separate process, because the modules it imports are about to be removed.
    stopped = subprocess.run(python_command("sari.cli.main", "daemon", "stop"), check=False)
    data = installed.data_folder(os.environ)
    application = own_application()
    if application is None:
        print(f"This sari is installed in {sys.prefix}: remove it the way it was installed (`pip uninstall sari`).")
    else:
        application.remove()
        print(f"Removed {application.command} and {application.folder}.")
    print(f"The registry, the indexes and the backups are kept in {data}; delete that folder to remove them.")
    return 1 if refused or stopped.returncode != 0 else 0
