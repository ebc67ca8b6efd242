"""git's credential helper: requests credentials from CodeHub through `workspaced` every time, and stores nothing.

Usage: `python -I -S credential_helper.py SOCKET [hint] get|store|erase`, see gitcredentials(7). `hint` is for hosts that
CodeHub has no credential for: it gives git nothing, and prints why. `store` does nothing, and `erase`, which git calls
after a refused credential, prints what to do: users change the stored credentials with `codehub git-auth`.
"""

from __future__ import annotations

import json
import socket
import sys

_FIELDS = ("protocol", "host", "path", "username")
_HINT = "hint"


def main(arguments: list[str]) -> int:
    """Answer git on standard output. Messages for the user go to standard error, which git leaves alone."""
    path, *mode, action = arguments if len(arguments) in (2, 3) else ("", "")
    only_hint = mode == [_HINT]
    if action not in ("get", "erase") or (only_hint and action == "erase"):
        return 0
    pairs = (line.rstrip("\n").partition("=") for line in sys.stdin)
    request = {name: value for name, _, value in pairs if name in _FIELDS}
    if request.get("protocol") not in ("http", "https"):  # `git send-email` asks for the password of a mail server
        return 0
    if action == "erase":
        _say(f"{_host(request)} refused the credential. {_how_to_add(request, 'Replace it')}")
        return 0
    try:
        answer = _ask(path, request)
    except (OSError, ValueError) as error:
        _say(f"credentials are not available: {error}")
        return 0
    given = {name: answer.get(name) for name in ("username", "password")}
    if answer.get("error"):
        _say(str(answer["error"]))
    elif not given["password"]:
        _say(f"no credential for {_host(request)}. {_how_to_add(request, 'Add one')}")
    if not only_hint:
        for name, value in given.items():
            if isinstance(value, str) and value and "\n" not in value:
                print(f"{name}={value}")
    return 0


def _ask(path: str, request: dict[str, str]) -> dict[str, object]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(60.0)
        connection.connect(path)
        connection.sendall(json.dumps(request).encode() + b"\n")
        connection.shutdown(socket.SHUT_WR)
        with connection.makefile("rb") as stream:
            answer = json.loads(stream.read(1 << 20) or b"{}")
    if not isinstance(answer, dict):
        raise ValueError("the answer is not an object")
    return answer


def _host(request: dict[str, str]) -> str:
    """Return the host as text for a terminal: a repository can name any URL for a submodule."""
    return "".join(char for char in request.get("host", "") if char.isprintable())[:200]


def _how_to_add(request: dict[str, str], verb: str) -> str:
    scheme = "http://" if request.get("protocol") == "http" else ""
    return f"{verb} with `codehub git-auth add {scheme}{_host(request)}` or on your account page."


def _say(text: str) -> None:
    print(f"codehub: {text}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
