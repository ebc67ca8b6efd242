"""Opens folders of a workspace without following links, so that no write can leave the root.

Every component is opened relative to the one before it. Even if the tree changes meanwhile, a descriptor stays in the
folder that was opened.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ_ONLY = frozenset({b"site-packages", b"dist-packages", b"node_modules", b".git", b".hg", b".svn"})


class EditRefused(Exception):
    """Raised when an edit is refused. Nothing was changed; the message says why."""


class Folders:
    """The folders of some files below a root, each opened once."""

    def __init__(self, root: Path) -> None:
        self._stack = contextlib.ExitStack()
        self._root = root
        self._open: dict[bytes, int] = {}

    def of(self, path: bytes) -> tuple[int, bytes]:
        """Return a descriptor of the file's folder, and the file's name."""
        folder, _, name = path.rpartition(b"/")
        if name in (b"", b".", b"..") or path.startswith(b"/"):
            raise EditRefused(f"{os.fsdecode(path)} is not the path of a file in the workspace.")
        descriptor = self._open.get(folder)
        if descriptor is None:
            descriptor = self._open[folder] = self._descend(folder, path)
        return descriptor, name

    def _descend(self, folder: bytes, path: bytes) -> int:
        descriptor = os.open(self._root, _FLAGS)
        try:
            for part in folder.split(b"/") if folder else ():
                if part in (b"", b".", b".."):
                    raise EditRefused(f"{os.fsdecode(path)} is not the path of a file in the workspace.")
                below = os.open(part, _FLAGS, dir_fd=descriptor)
                os.close(descriptor)
                descriptor = below
        except OSError as error:
            os.close(descriptor)
            raise EditRefused(
                f"{os.fsdecode(path)} is not changed: a folder on its way is gone or a link ({error.strerror})."
            ) from error
        except BaseException:
            os.close(descriptor)
            raise
        self._stack.callback(os.close, descriptor)
        return descriptor

    def sync(self) -> None:
        """Sync these folders, so that their entries survive a power failure."""
        for descriptor in self._open.values():
            os.fsync(descriptor)

    def close(self) -> None:
        self._stack.close()
        self._open.clear()


@contextlib.contextmanager
def open_folders(root: Path) -> Iterator[Folders]:
    folders = Folders(root)
    try:
        yield folders
    finally:
        folders.close()


def is_read_only(path: bytes) -> bool:
    """Whether a file belongs to an installed dependency or to version control, which edits never change."""
    parts = path.split(b"/")
    return any(part in _READ_ONLY for part in parts) or b"/pkg/mod/" in b"/" + path


def read_regular(folder: int, name: bytes, shown: str, most_bytes: int) -> tuple[bytes, os.stat_result]:
    """Return a file's content and state. Raises `EditRefused` for a link, a special file or a file that is too large."""
    try:
        descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    except OSError as error:
        raise EditRefused(f"{shown} is not changed: it is gone or a link ({error.strerror}).") from error
    with open(descriptor, "rb") as file:
        state = os.fstat(descriptor)
        if state.st_mode & 0o170000 != 0o100000:
            raise EditRefused(f"{shown} is not a regular file.")
        if state.st_size > most_bytes:
            raise EditRefused(f"{shown} is too large to be edited ({state.st_size} bytes).")
        return file.read(), state
