"""git's credential helper: requests credentials from CodeHub through `workspaced` every time, and stores nothing.

Usage: `python -I -S credential_helper.py SOCKET get|store|erase`, see gitcredentials(7). `store` and `erase` do nothing:
users change the stored credentials with `codehub git-auth`.
"""

from __future__ import annotations

import json
import socket
import sys

_FIELDS = ("protocol", "host", "path", "username")


def main(arguments: list[str]) -> int:
    if len(arguments) != 2 or arguments[1] != "get":
        return 0
    pairs = (line.rstrip("\n").partition("=") for line in sys.stdin)
    request = {name: value for name, _, value in pairs if name in _FIELDS}
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(60.0)
            connection.connect(arguments[0])
            connection.sendall(json.dumps(request).encode() + b"\n")
            connection.shutdown(socket.SHUT_WR)
            with connection.makefile("rb") as stream:
                answer = json.loads(stream.read(1 << 20) or b"{}")
    except (OSError, ValueError) as error:
        print(f"codehub: credentials are not available: {error}", file=sys.stderr)
        return 0
    if answer.get("error"):
        print(f"codehub: {answer['error']}", file=sys.stderr)
    for name in ("username", "password"):
        value = answer.get(name)
        if isinstance(value, str) and value and "\n" not in value:
            print(f"{name}={value}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
