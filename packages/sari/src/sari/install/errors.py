"""Errors that explain why a client's configuration file was not changed."""

from __future__ import annotations

from pathlib import Path

from sari.protocol.errors import SariError


class InstallError(SariError):
    """The root of installation errors. The message says what happened and what to do."""


class Unreadable(InstallError):
    """Raised when the client itself could not read the text. Contains the line and the reason."""

    def __init__(self, line: int, why: str) -> None:
        super().__init__(f"line {line}: {why}")
        self.line = line
        self.why = why


class Refused(InstallError):
    """Raised when a file is left untouched. `by_hand` is the text that the user would have to add."""

    def __init__(self, path: Path, why: str, by_hand: str = "") -> None:
        message = f"{path}: {why}. The file was left untouched."
        if by_hand:
            message += "\nTo do it by hand, put this into it:\n\n" + _indented(by_hand)
        super().__init__(message)
        self.path = path
        self.why = why


def _indented(text: str) -> str:
    return "".join(f"    {line}\n" for line in text.rstrip("\n").split("\n"))
