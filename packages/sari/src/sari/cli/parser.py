"""Builds the argument parser from the command modules and runs the chosen command.

A command module has `register(subparsers)`, which adds its parser and sets its function with `set_defaults(run=...)`.
`run` takes the parsed arguments and returns an exit code. It raises `SariError` for a problem that the user can fix,
which prints one line and exits with code 1.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import os
import sys

from sari import __version__
from sari.cli.main import COMMANDS
from sari.protocol.errors import SariError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from _typeshed import SupportsWrite


class _Formatter(argparse.HelpFormatter):
    """Like its base, which imports `shutil` with all of its compressors to learn the width of the terminal."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=_columns() - 2)


def _columns() -> int:
    with contextlib.suppress(ValueError):
        return int(os.environ.get("COLUMNS", "")) or 80
    with contextlib.suppress(OSError, ValueError, AttributeError):
        return os.get_terminal_size(sys.__stdout__.fileno()).columns or 80  # type: ignore[union-attr]
    return 80


class _Parser(argparse.ArgumentParser):
    """A parser, and the class of its commands' parsers."""

    def __init__(self, **options: Any) -> None:
        super().__init__(formatter_class=_Formatter, **options)

    def _print_message(self, message: str, file: SupportsWrite[str] | None = None) -> None:
        # The base ignores a full device.
        (file or sys.stderr).write(message)


def build_parser(command: str | None = None) -> argparse.ArgumentParser:
    """Return the parser for one command, or for all commands."""
    parser = _Parser(prog="sari", description="One shared code-search daemon for all your AI tools.")
    parser.add_argument("--version", action="version", version=f"sari {__version__}")
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name in [command] if command is not None else COMMANDS:
        importlib.import_module(f"sari.cli.{name}").register(subparsers)
    return parser


def run_command(words: list[str]) -> int:
    """Parse and run a command. Errors that the user can fix become one line on stderr."""
    _open_closed_streams()
    try:
        try:
            # A user waits for this process to start, so the other commands are not imported.
            known = words[0] if words and words[0] in COMMANDS else None
            arguments = build_parser(known).parse_args(words)
            return int(arguments.run(arguments))
        finally:
            # Flush now, not at interpreter exit, so that a full device can be reported as an error.
            sys.stdout.flush()
    except SariError as error:
        return _fail(str(error))
    except BrokenPipeError:
        # The reader (such as `head`) closed the pipe. Discard the rest of the buffer, also at exit.
        _discard_stdout()
        return 128 + 13
    except OSError as error:
        _discard_stdout()
        return _fail(f"{error.filename or 'the output cannot be written'}: {error.strerror or error}")
    except KeyboardInterrupt:
        return 130


def _open_closed_streams() -> None:
    """Discard what a command prints if its caller closed the stream (`>&-`): Python has no object for it then."""
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - for the rest of the process
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - for the rest of the process


def _fail(message: str) -> int:
    with contextlib.suppress(OSError):
        print(f"sari: {message}", file=sys.stderr)
    return 1


def _discard_stdout() -> None:
    with contextlib.suppress(OSError, ValueError):
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, sys.stdout.fileno())
        os.close(nothing)
