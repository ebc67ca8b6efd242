"""The directories that the user allowed every client to open, and those that the user trusts (`sari allow`).

Stored in a file beside the registry.
"""

from __future__ import annotations

import contextlib
import json
import os

from sari.protocol.errors import SariError
from sari.registry.layout import Layout, make_private_directory
from sari.registry.locks import FileLock
from sari.registry.roots import check_not_system

_LOCK_WAIT_S = 10.0


def read_allowed(layout: Layout) -> list[str]:
    """Return the allowed directories, or none if the file is missing or unreadable."""
    return _read(layout.allowed_file)["roots"]


def read_trusted(layout: Layout) -> list[str]:
    """Return the directories in which language servers may run programs that the repository names."""
    return _read(layout.allowed_file)["language_servers"]


def is_trusted(data_dir: str | os.PathLike[str], root: str) -> bool:
    """Whether a workspace is inside a directory that the user trusts."""
    trusted = _read(os.path.join(data_dir, os.path.basename(Layout("/").allowed_file)))["language_servers"]
    return any(root == one or root.startswith(one.rstrip("/") + "/") for one in trusted)


def _read(path: str) -> dict[str, list[str]]:
    try:
        with open(path, encoding="utf-8") as file:
            content = json.load(file)
    except (OSError, ValueError):
        content = {}
    found: dict[str, list[str]] = {}
    for name in ("roots", "language_servers"):
        listed = content.get(name) if isinstance(content, dict) else None
        found[name] = [one for one in listed if isinstance(one, str)] if isinstance(listed, list) else []
    return found


def allow(layout: Layout, path: str, *, what: str = "roots") -> str:
    """Allow a directory and its subdirectories to be opened, or trust it (`language_servers`). Returns its canonical
    path.
    """
    resolved = os.path.realpath(path)
    if not os.path.isdir(resolved):
        raise SariError(f"{path} is not a directory")
    check_not_system(resolved)
    _change(layout, what, add=resolved)
    return resolved


def disallow(layout: Layout, path: str, *, what: str = "roots") -> bool:
    """Remove a directory from a list. Returns False if it was not listed."""
    return _change(layout, what, remove=os.path.realpath(path))


def _change(layout: Layout, what: str, add: str | None = None, remove: str | None = None) -> bool:
    make_private_directory(layout.data_dir)
    with FileLock(layout.allowed_file + ".lock") as lock:
        lock.acquire(_LOCK_WAIT_S)
        lists = _read(layout.allowed_file)
        before = lists[what]
        after = sorted({*before, *([add] if add else [])} - {remove})
        if after == before:
            return False
        lists[what] = after
        temporary = f"{layout.allowed_file}.{os.getpid()}.tmp"
        try:
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            with open(descriptor, "w", encoding="utf-8") as file:
                json.dump(lists, file, indent=1)
            os.replace(temporary, layout.allowed_file)
        except OSError as error:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise SariError(f"cannot write {layout.allowed_file} ({error.strerror}): make it writable") from error
        return True
