"""Reads and checks what requests carry."""

from __future__ import annotations

from .errors import RequestError, invalid
from .holder import shell
from .http1 import Request, Response

EMPTY = Response(204, {}, b"")


def command_of(body: dict[str, object]) -> list[str]:
    """Return the command: a list of words as given, or a text for the user's shell."""
    command = body.get("command")
    if isinstance(command, str) and command.strip() and "\0" not in command:
        return [shell(), "-c", command]
    if isinstance(command, list) and command and all(isinstance(w, str) and "\0" not in w for w in command):
        return [str(word) for word in command]
    raise invalid("`command` is a list of words or a line for the shell")


def whole_number(text: str, name: str) -> int:
    if not (text.isascii() and text.isdigit()) or len(text) > 18:
        raise invalid(f"`{name}` is a number")
    return int(text)


def not_allowed(request: Request) -> RequestError:
    return RequestError(405, "METHOD_NOT_ALLOWED", f"{request.method} is not possible here")
