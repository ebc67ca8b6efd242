"""`sari mcp`: parses its few flags and runs the shim until the client closes stdin. Imports as little as possible."""

from __future__ import annotations

import os
import sys

USAGE = "usage: sari mcp [--workspace DIR] [--daemon-port PORT]"


class BadFlag(Exception):
    """Raised for an unknown flag of `sari mcp`, or a flag without its value."""


def run(words: list[str]) -> int:
    """Run the shim, then end the process, because its threads may still wait for the daemon."""
    try:
        flags = parse_flags(words)
    except BadFlag as error:
        print(f"sari: {error}\n{USAGE}", file=sys.stderr)
        return 2
    _end_at_once_when_told()
    from sari.shim.core import Shim
    from sari.shim.stdio import Stdio

    stdio = Stdio(0, 1)
    code = Shim(stdio, dict(os.environ), os.getcwd(), flags).run()
    sys.stderr.flush()
    os._exit(code)


def parse_flags(words: list[str]) -> dict[str, str]:
    """Return the flags as name → value. Raises `BadFlag`."""
    flags: dict[str, str] = {}
    rest = list(words)
    while rest:
        name, equals, value = rest.pop(0).partition("=")
        if name not in ("--workspace", "--daemon-port"):
            raise BadFlag(f"`sari mcp` does not know {name}")
        if not equals:
            if not rest:
                raise BadFlag(f"{name} needs a value")
            value = rest.pop(0)
        flags[name[2:]] = value
    port = flags.get("daemon-port", "1")
    if not port.isdecimal() or not 0 < int(port) < 65536:
        raise BadFlag(f"--daemon-port {port} is no port number")
    return flags


def _end_at_once_when_told() -> None:
    # Python would run its handler only after the next line on stdin.
    import signal

    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
