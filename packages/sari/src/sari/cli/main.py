"""The `sari` command: maps each subcommand to its module.

Clients start `sari mcp`, and some wait only a second for it, so it goes straight to the shim before argparse is
imported. Every other command has its own module, whose `register` must import nothing heavy.
"""

from __future__ import annotations

import sys

# In the order that `sari --help` shows. Each is a module of sari.cli with `register(subparsers)`.
COMMANDS = (
    "mcp",
    "daemon",
    "status",
    "search",
    "symbols",
    "roots",
    "allow",
    "web",
    "install",
    "doctor",
    "upgrade",
    "self_command",
)


def main(arguments: list[str] | None = None) -> int:
    """Run one command and return the process's exit code."""
    words = sys.argv[1:] if arguments is None else arguments
    if words and words[0] in ("mcp", "proxy") and not {"-h", "--help"} & set(words):
        from sari.shim.entry import run

        return run(words[1:])
    from sari.cli.parser import run_command

    return run_command(words)


if __name__ == "__main__":
    sys.exit(main())
