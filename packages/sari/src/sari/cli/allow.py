"""`sari allow`: lets every client open a directory besides its own workspace."""

from __future__ import annotations

import argparse
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from sari.cli.types import Subparsers


def register(subparsers: Subparsers) -> None:
    what = "let every client open a directory, and those below it, besides its own workspace"
    parser = subparsers.add_parser("allow", help=what, description=what.capitalize() + ".")
    parser.add_argument("path", nargs="?", metavar="PATH", help="the directory (default: list what is allowed)")
    parser.add_argument("--remove", action="store_true", help="stop allowing it")
    parser.add_argument(
        "--language-servers",
        action="store_true",
        help="trust it: language servers may run build scripts and compilers that it names (rust-analyzer, jdtls)",
    )
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    from sari.protocol.errors import SariError
    from sari.registry.allowed import allow, disallow, read_allowed, read_trusted
    from sari.registry.layout import find_layout

    layout = find_layout(os.environ)
    trusting = arguments.language_servers
    what = "language_servers" if trusting else "roots"
    if arguments.path is None:
        if arguments.remove:
            raise SariError("name the directory to remove: `sari allow --remove PATH`")
        listed = read_trusted(layout) if trusting else read_allowed(layout)
        nothing = (
            "No directory is trusted." if trusting else "Nothing besides each client's own workspace is allowed."
        )
        print("\n".join(listed) or nothing)
    elif arguments.remove:
        if not disallow(layout, arguments.path, what=what):
            raise SariError(f"{arguments.path} is not allowed: `sari allow` lists what is")
        print(f"{os.path.realpath(arguments.path)} is no longer allowed.")
    elif trusting:
        print(f"Language servers may run what {allow(layout, arguments.path, what=what)} names.")
    else:
        print(f"Clients may open {allow(layout, arguments.path)} and what is below it.")
    return 0
