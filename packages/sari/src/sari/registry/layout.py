"""The paths of sari's files, all in the registry file's directory.

The home directory is HOME, else the one in the password database, never an XDG variable: Codex clears those, and a
second path would mean a second daemon.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from sari.protocol.errors import SariError


class Layout:
    """The paths of the registry file and of everything beside it."""

    # Not a dataclass, like everything that `usual` needs: importing `dataclasses` takes as long as starting Python.
    __slots__ = ("registry_file",)

    def __init__(self, registry_file: str) -> None:
        self.registry_file = registry_file

    @property
    def data_dir(self) -> str:
        return os.path.dirname(self.registry_file)

    @property
    def registry_lock(self) -> str:
        return self.registry_file + ".lock"

    @property
    def start_lock(self) -> str:
        return os.path.join(self.data_dir, "start.lock")

    @property
    def lock_dir(self) -> str:
        return os.path.join(self.data_dir, "locks")

    @property
    def log_dir(self) -> str:
        return os.path.join(self.data_dir, "logs")

    @property
    def token_file(self) -> str:
        return os.path.join(self.data_dir, "token")

    @property
    def allowed_file(self) -> str:
        return os.path.join(self.data_dir, "allowed.json")

    @property
    def failed_start_file(self) -> str:
        return os.path.join(self.data_dir, "failed-start.json")

    @property
    def warm_roots_file(self) -> str:
        return os.path.join(self.data_dir, "warm-roots")

    def life_lock(self, boot_id: str) -> str:
        """Return the path of the lock that a daemon holds while it runs."""
        return os.path.join(self.lock_dir, f"{boot_id}.lock")


def home_directory(environ: Mapping[str, str]) -> str:
    """Return the user's home directory: HOME, else the entry in the password database."""
    home = environ.get("HOME") or environ.get("USERPROFILE")
    if home:
        return home
    try:
        import pwd

        return pwd.getpwuid(os.getuid()).pw_dir
    except (ImportError, KeyError):
        raise SariError(
            "there is no home directory to keep the registry in: set HOME, or SARI_REGISTRY_FILE to a file path"
        ) from None


def find_layout(environ: Mapping[str, str]) -> Layout:
    """Return the layout that the environment selects."""
    chosen = environ.get("SARI_REGISTRY_FILE")
    if chosen:
        return Layout(os.path.abspath(os.path.expanduser(chosen)))
    return Layout(os.path.join(home_directory(environ), ".local", "share", "sari", "server.json"))


def make_private_directory(path: str) -> None:
    """Create a directory for the owner only, if it does not exist."""
    try:
        os.makedirs(path, mode=0o700, exist_ok=True)
    except OSError as error:
        raise SariError(
            f"cannot make the directory {path} ({error.strerror}): make its parent writable, "
            "or set SARI_REGISTRY_FILE to a file in a directory that is"
        ) from error
