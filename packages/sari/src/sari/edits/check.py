"""Checks an edit before it is made: the file must be writable and keep its encoding."""

from __future__ import annotations

import os

from sari.edits.folders import EditRefused


def check_writable(folder: int, name: bytes, shown: str) -> None:
    """Refuse a read-only file: a new file could take its place, but its owner does not want it to be changed."""
    mode = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
    if not mode & 0o222 or not os.access(name, os.W_OK, dir_fd=folder):
        raise EditRefused(f"{shown} is read-only. Make it writable or narrow by `path`; nothing was changed.")


def check_encoding(content: bytes, inserted: str, shown: str) -> None:
    """Refuse to write UTF-8 into a file that is in another encoding: no program could read all of it."""
    if inserted.isascii():
        return
    try:
        content.decode()
    except UnicodeDecodeError as error:
        raise EditRefused(f"{shown} is not UTF-8, so only ASCII text can be put into it.") from error
