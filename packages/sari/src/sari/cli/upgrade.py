"""`sari upgrade`: installs a newer version beside the old one, checks it, then switches over without downtime."""

from __future__ import annotations

import argparse
import subprocess
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from sari.cli.types import Subparsers


def register(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser("upgrade", help="install a newer version of sari without interrupting clients")
    parser.add_argument("--version", metavar="VERSION", help="install exactly this version (default: the newest)")
    parser.add_argument("--wheel", metavar="FILE", help="install from this wheel file")
    parser.add_argument(
        "--wheels", metavar="DIR", help="install from the wheels in this folder, without network access"
    )
    parser.add_argument(
        "--requirements",
        metavar="FILE",
        help="install what this requirements file pins, and check every file against its hash (pip's --require-hashes)",
    )
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    from sari.install.application import build, own_application, python_of
    from sari.install.errors import InstallError
    from sari.install.source import choose_source

    application = own_application()
    if application is None:
        raise InstallError(
            f"this sari was not installed by bootstrap.sh or install.py but lives in {sys.prefix}. Upgrade it the way "
            "it was installed, for example with `pip install --upgrade sari`, then run `sari daemon restart`."
        )
    source = choose_source(arguments.wheel, arguments.wheels, arguments.version, arguments.requirements)
    environment = build(application, source)
    # The new version does the rest, because it knows best how to check itself and take over.
    command = [str(python_of(environment)), "-EP", "-m", "sari.install.activate", str(application.prefix)]
    return subprocess.run([*command, str(environment)], check=False).returncode
