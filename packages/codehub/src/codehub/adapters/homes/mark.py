"""The id of a homes' directory, which distinguishes it from an empty mount point whose disk is not mounted.

The coordinator gives a directory its id once, and the database remembers it (`control/stores.py`). From then on, the homes
are Unknown while the directory does not have that id, never lost.
"""

from __future__ import annotations

import asyncio
import os
import secrets
from pathlib import Path

from codehub.adapters.homes.layout import sync_dir
from codehub.domain.errors import BackendDown

MARK = ".codehub-homes"


class HomesMark:
    """Implements ports.stores.IdentifiedStore for a directory of homes."""

    kind = "homes"

    def __init__(self, root: Path, *, takes_new: bool = True) -> None:
        self.root = root
        self.takes_new = takes_new
        self._expected: str | None = None
        self._held = ""

    @property
    def place(self) -> str:
        return str(self.root)

    async def read_id(self) -> str | None:
        return await asyncio.to_thread(self._read)

    async def write_id(self, store_id: str) -> None:
        await asyncio.to_thread(self._write, store_id)

    def expect(self, store_id: str) -> None:
        self._expected, self._held = store_id, ""

    def hold(self, why: str) -> None:
        self._held = why

    def check(self) -> None:
        """Raise BackendDown unless this is known to be the homes' directory."""
        if self._held:
            raise BackendDown(self._held)
        if self._expected is not None and self._read() != self._expected:
            raise BackendDown(
                f"the homes' directory {self.root} is not the one it was ({MARK} is missing or another's): "
                "is its disk mounted?"
            )

    def _read(self) -> str | None:
        try:
            return (self.root / MARK).read_text(encoding="utf-8", errors="replace").strip() or None
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise BackendDown(f"the homes' directory {self.root} cannot be read: {error.strerror}") from error

    def _write(self, store_id: str) -> None:
        try:
            _write_whole(self.root / MARK, store_id)
        except OSError as error:
            raise BackendDown(f"the homes' directory {self.root} cannot be used: {error.strerror}") from error


def _write_whole(path: Path, text: str) -> None:
    new = path.with_name(f"{path.name}.{secrets.token_hex(4)}.new")
    fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with open(fd, "w", encoding="utf-8") as file:
        file.write(text + "\n")
        file.flush()
        os.fsync(file.fileno())
    os.rename(new, path)
    sync_dir(path.parent)  # the database is about to remember this id
