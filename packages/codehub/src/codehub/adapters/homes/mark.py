"""The mark that says: this directory is the homes', and not an empty mount point whose disk is elsewhere today.

A token in the directory itself, and the same one beside CodeHub's data. When only the second is there, the disk is not: the
homes are Unknown then, never lost.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from dataclasses import dataclass
from pathlib import Path

from codehub.domain.errors import BackendDown

MARK = ".codehub-homes"
WITNESS = "homes-mark"  # in the data directory


@dataclass(frozen=True, slots=True)
class HomesMark:
    """`witness` is a file on the disk of CodeHub's own data."""

    root: Path
    witness: Path

    def make(self) -> None:
        """Once, for a directory that was never marked; repeatable. BackendDown when it was and is not now."""
        self.check()
        mark = self.root / MARK
        if not mark.exists():
            _write_whole(mark, secrets.token_hex(16))
        token = mark.read_text().strip()
        if self._remembered() != token:
            _write_whole(self.witness, f"{token} {self.root}")

    def check(self) -> None:
        if not (self.root / MARK).exists() and self._remembered() is not None:
            raise BackendDown(
                f"the homes' directory {self.root} is not the one it was ({MARK} is missing): is its disk mounted? "
                f"If the homes are gone for good, remove {self.witness}"
            )

    def _remembered(self) -> str | None:
        """The token this very directory had; another directory's says nothing about this one."""
        with contextlib.suppress(OSError):
            token, _, root = self.witness.read_text().strip().partition(" ")
            if root == str(self.root):
                return token
        return None


def _write_whole(path: Path, text: str) -> None:
    new = path.with_name(f"{path.name}.{secrets.token_hex(4)}.new")
    fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with open(fd, "w", encoding="utf-8") as file:
        file.write(text + "\n")
        file.flush()
        os.fsync(file.fileno())
    os.rename(new, path)
