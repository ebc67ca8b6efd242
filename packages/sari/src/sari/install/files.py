"""Reads and replaces configuration files of other programs atomically, and keeps their mode, owner and links.

Handles bytes, not formats.
"""

from __future__ import annotations

import codecs
import contextlib
import os
import stat
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sari.install.errors import Refused

# A larger file is not a configuration file.
_LARGEST: Final = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Found:
    """A file that was read: its real path and its bytes (None: the file does not exist)."""

    path: Path
    real: Path
    data: bytes | None

    @property
    def text(self) -> str:
        """The text without a byte order mark. Raises Refused if it is not UTF-8."""
        try:
            return (self.data or b"").removeprefix(codecs.BOM_UTF8).decode("utf-8")
        except UnicodeDecodeError as error:
            line = (self.data or b"").count(b"\n", 0, error.start) + 1
            raise Refused(self.path, f"line {line} is not UTF-8 text") from error

    def encoded(self, text: str) -> bytes:
        """Return `text` encoded for this file."""
        mark = codecs.BOM_UTF8 if (self.data or b"").startswith(codecs.BOM_UTF8) else b""
        return mark + text.encode("utf-8")


def find(path: Path) -> Found:
    """Read a file. Links are followed, so that a linked configuration stays a link."""
    try:
        real = Path(os.path.realpath(path, strict=False))
        if path.is_symlink() and real.is_symlink():
            raise Refused(path, "it is a link that leads back to itself")
        kind = real.lstat().st_mode
        if not stat.S_ISREG(kind):
            raise Refused(path, "it is not a regular file")
        if real.stat().st_size > _LARGEST:
            raise Refused(path, "it is larger than any configuration")
        return Found(path, real, real.read_bytes())
    except FileNotFoundError:
        return Found(path, real, None)
    except NotADirectoryError as error:
        raise Refused(path, "a part of its path is not a folder") from error
    except OSError as error:
        raise Refused(path, f"it cannot be read ({error.strerror})") from error


def replace(found: Found, data: bytes) -> bool:
    """Replace the file's content with `data`. Returns False if another program changed the file since it was read."""
    real = found.real
    try:
        real.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{real.name}.", suffix=".sari", dir=real.parent)
    except OSError as error:
        raise _not_writable(found, error) from error
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        _like(Path(name), real)
        if find(found.path).data != found.data:
            return False
        os.replace(name, real)
        return True
    except OSError as error:
        raise _not_writable(found, error) from error
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name)


def remove(found: Found, made_folders: tuple[str, ...]) -> None:
    """Delete a file that installing created, and the folders created for it if they are empty."""
    try:
        found.real.unlink()
    except OSError as error:
        raise _not_writable(found, error) from error
    for folder in made_folders:
        try:
            os.rmdir(folder)
        except OSError:
            # The folder contains other files: keep it and the folders above it.
            return


def folders_to_make(path: Path) -> tuple[str, ...]:
    """Return the folders that writing `path` would create, innermost first."""
    missing: list[str] = []
    for parent in path.parents:
        if parent.exists():
            break
        missing.append(str(parent))
    return tuple(missing)


def _like(new: Path, old: Path) -> None:
    """Copy the mode and owner of the replaced file. A new file is private to the owner."""
    try:
        status = old.stat()
    except FileNotFoundError:
        new.chmod(0o600)
        return
    new.chmod(stat.S_IMODE(status.st_mode))
    if hasattr(os, "chown") and (status.st_uid, status.st_gid) != (os.geteuid(), os.getegid()):
        with contextlib.suppress(PermissionError):
            os.chown(new, status.st_uid, status.st_gid)


def _not_writable(found: Found, error: OSError) -> Refused:
    return Refused(found.path, f"it cannot be written ({error.strerror or error})")
