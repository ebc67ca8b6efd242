"""`sari mcp` (alias `proxy`): defines only the help. The shim does the work and parses its few flags itself."""

from __future__ import annotations

import argparse

TYPE_CHECKING = False
if TYPE_CHECKING:
    from sari.cli.types import Subparsers


def register(subparsers: Subparsers) -> None:
    """Add the command's help. This parser never runs: `sari.cli.main` calls the shim first."""
    parser = subparsers.add_parser(
        "mcp", aliases=["proxy"], help="run the MCP server on stdio (AI clients start this)"
    )
    parser.add_argument("--workspace", metavar="DIR", help="the workspace root (default: the client's project)")
    parser.add_argument("--daemon-port", type=int, metavar="PORT", help="start the daemon on exactly this port")
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    from sari.shim.entry import run

    words: list[str] = []
    for flag in ("workspace", "daemon_port"):
        value = getattr(arguments, flag)
        if value is not None:
            words += [f"--{flag.replace('_', '-')}", str(value)]
    return run(words)
