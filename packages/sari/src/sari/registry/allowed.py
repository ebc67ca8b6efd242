"""The directories that the user allowed every client to open (`sari allow`), in a file beside the registry."""

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
    """The allowed directories; none when the file is missing or unreadable."""
    try:
        with open(layout.allowed_file, encoding="utf-8") as file:
            content = json.load(file)
    except (OSError, ValueError):
        return []
    roots = content.get("roots") if isinstance(content, dict) else None
    return [root for root in roots if isinstance(root, str)] if isinstance(roots, list) else []


def allow(layout: Layout, path: str) -> str:
    """Allow a directory and everything below it. Returns its one spelling."""
    resolved = os.path.realpath(path)
    if not os.path.isdir(resolved):
        raise SariError(f"{path} is not a directory")
    check_not_system(resolved)
    _change(layout, add=resolved)
    return resolved


def disallow(layout: Layout, path: str) -> bool:
    """Take a directory off the list; False when it was not on it."""
    return _change(layout, remove=os.path.realpath(path))


def _change(layout: Layout, add: str | None = None, remove: str | None = None) -> bool:
    make_private_directory(layout.data_dir)
    with FileLock(layout.allowed_file + ".lock") as lock:
        lock.acquire(_LOCK_WAIT_S)
        before = read_allowed(layout)
        after = sorted({*before, *([add] if add else [])} - {remove})
        if after == before:
            return False
        temporary = f"{layout.allowed_file}.{os.getpid()}.tmp"
        try:
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            with open(descriptor, "w", encoding="utf-8") as file:
                json.dump({"roots": after}, file, indent=1)
            os.replace(temporary, layout.allowed_file)
        except OSError as error:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise SariError(f"cannot write {layout.allowed_file} ({error.strerror}): make it writable") from error
        return True
