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

# A larger file is not a configuration file. Some clients keep their history in it, but not in a project's.
_LARGEST: Final = 32 * 1024 * 1024
_LARGEST_OF_PROJECT: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Found:
    """A file that was read: its real path and its bytes (None: the file does not exist)."""

    path: Path
    real: Path
    data: bytes | None
    within: Path | None = None

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


def find(path: Path, within: Path | None = None) -> Found:
    """Read a file. Links are followed, so that a linked configuration stays a link.

    A project's links (`within`) may not lead out of the project: a repository can contain a link to any file of its user.
    """
    try:
        real = Path(os.path.realpath(path, strict=False))
        if within is not None and not real.is_relative_to(os.path.realpath(within)):
            raise Refused(path, f"it is behind a link that leads out of the project, to {real}")
        if path.is_symlink() and real.is_symlink():
            raise Refused(path, "it is a link that leads back to itself")
        return Found(path, real, _content(path, real, _LARGEST if within is None else _LARGEST_OF_PROJECT), within)
    except FileNotFoundError:
        return Found(path, real, None, within)
    except NotADirectoryError as error:
        raise Refused(path, "a part of its path is not a folder") from error
    except OSError as error:
        raise Refused(path, f"it cannot be read ({error.strerror})") from error


def _content(path: Path, real: Path, most_bytes: int) -> bytes:
    # Opening a named pipe would wait for a writer, and reading a device may never end.
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
    descriptor = os.open(real, flags)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise Refused(path, "it is not a regular file")
        with open(descriptor, "rb", closefd=False) as file:
            data = file.read(most_bytes + 1)
    finally:
        os.close(descriptor)
    if len(data) > most_bytes:
        raise Refused(path, "it is larger than any configuration")
    return data


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
        if find(found.path, found.within).data != found.data:
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
