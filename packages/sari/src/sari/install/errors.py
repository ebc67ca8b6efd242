"""Why a client's configuration file was left alone."""

from __future__ import annotations

from pathlib import Path

from sari.protocol.errors import SariError


class InstallError(SariError):
    """Root of what installing can fail with; the message says what happened and what to do."""


class Unreadable(InstallError):
    """The text is not what its client would read: where, and why."""

    def __init__(self, line: int, why: str) -> None:
        super().__init__(f"line {line}: {why}")
        self.line = line
        self.why = why


class Refused(InstallError):
    """One file is left untouched; `by_hand` is what a person would have to add."""

    def __init__(self, path: Path, why: str, by_hand: str = "") -> None:
        message = f"{path}: {why}. The file was left untouched."
        if by_hand:
            message += "\nTo do it by hand, put this into it:\n\n" + _indented(by_hand)
        super().__init__(message)
        self.path = path
        self.why = why


def _indented(text: str) -> str:
    return "".join(f"    {line}\n" for line in text.rstrip("\n").split("\n"))
