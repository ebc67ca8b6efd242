"""Builds the argument parser from the command modules and runs the chosen one.

A command module has `register(subparsers)`, which adds its parser and names its work with `set_defaults(run=...)`;
`run` takes the parsed arguments and returns an exit code. It raises `SariError` for what a user can fix: one line,
exit code 1.
"""

from __future__ import annotations

import argparse
import importlib
import sys

from sari import __version__
from sari.cli.main import COMMANDS
from sari.protocol.errors import SariError


def build_parser() -> argparse.ArgumentParser:
    """The whole command line."""
    parser = argparse.ArgumentParser(prog="sari", description="One shared code-search daemon for all your AI tools.")
    parser.add_argument("--version", action="version", version=f"sari {__version__}")
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name in COMMANDS:
        importlib.import_module(f"sari.cli.{name}").register(subparsers)
    return parser


def run_command(words: list[str]) -> int:
    """Parse and run; errors that a user can fix become one line on stderr."""
    arguments = build_parser().parse_args(words)
    try:
        return int(arguments.run(arguments))
    except SariError as error:
        print(f"sari: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
