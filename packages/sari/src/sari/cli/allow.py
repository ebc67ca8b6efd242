"""`sari allow`: lets every client open a directory besides its own workspace."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sari.cli.types import Subparsers


def register(subparsers: Subparsers) -> None:
    what = "let every client open a directory, and those below it, besides its own workspace"
    parser = subparsers.add_parser("allow", help=what, description=what.capitalize() + ".")
    parser.add_argument("path", nargs="?", metavar="PATH", help="the directory (default: list what is allowed)")
    parser.add_argument("--remove", action="store_true", help="stop allowing it")
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    from sari.protocol.errors import SariError
    from sari.registry.allowed import allow, disallow, read_allowed
    from sari.registry.layout import find_layout

    layout = find_layout(os.environ)
    if arguments.path is None:
        if arguments.remove:
            raise SariError("name the directory to remove: `sari allow --remove PATH`")
        print("\n".join(read_allowed(layout)) or "Nothing besides each client's own workspace is allowed.")
    elif arguments.remove:
        if not disallow(layout, arguments.path):
            raise SariError(f"{arguments.path} is not allowed: `sari allow` lists what is")
        print(f"{os.path.realpath(arguments.path)} is no longer allowed.")
    else:
        print(f"Clients may open {allow(layout, arguments.path)} and what is below it.")
    return 0
