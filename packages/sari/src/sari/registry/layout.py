"""The paths of sari's files, all in the registry file's directory.

The home directory is HOME, else the one in the password database, never an XDG variable: Codex clears those, and a
second path would mean a second daemon.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping

from sari.protocol.errors import SariError

_ELSEWHERE = "set SARI_REGISTRY_FILE to a file in a directory of your own"


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


def check_outside(layout: Layout, root: str, environ: Mapping[str, str]) -> None:
    """Refuse a registry inside the client's own project. A project's configuration can name one, and the files beside it
    say which daemon to trust and which directories are allowed. Raises `SariError`.
    """
    chosen, home = environ.get("SARI_REGISTRY_FILE"), home_of(environ)
    project = os.path.realpath(root)
    if home is not None and is_within(home, project):
        # `/` or `/home`: everything is inside, also what is the user's own.
        return
    if chosen and root and is_within(os.path.realpath(layout.data_dir), project):
        raise SariError(f"SARI_REGISTRY_FILE is {chosen}, inside the project {root}: {_ELSEWHERE}, outside of it")


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


def home_of(environ: Mapping[str, str]) -> str | None:
    """Return the canonical path of the user's home directory; None if there is none."""
    try:
        home = home_directory(environ)
    except SariError:
        return None
    return os.path.realpath(home) if os.path.isabs(home) else None


def is_within(path: str, folder: str) -> bool:
    """Whether a canonical path is a folder or inside of it."""
    return path == folder or path.startswith(folder.rstrip(os.sep) + os.sep)


def find_layout(environ: Mapping[str, str]) -> Layout:
    """Return the layout that the environment selects."""
    chosen = environ.get("SARI_REGISTRY_FILE")
    if chosen:
        path = os.path.expanduser(chosen)
        if not os.path.isabs(path):
            # It could be a repository's, which would say which daemon to trust and which directories are allowed.
            raise SariError(
                f"SARI_REGISTRY_FILE is {chosen!r}, which depends on the current directory: use an absolute path"
            )
        return Layout(os.path.normpath(path))
    home = home_directory(environ)
    if not os.path.isabs(home):
        raise SariError(f"the home directory {home!r} depends on the current directory: set HOME to an absolute path")
    return Layout(os.path.join(home, ".local", "share", "sari", "server.json"))


def make_private_directory(path: str) -> None:
    """Create a directory for the owner only, if it does not exist. Raises `SariError` if it is another user's or shared.

    Whoever may write in it could put a token or a registry there, and read what a daemon keeps.
    """
    try:
        os.makedirs(path, mode=0o700, exist_ok=True)
        if os.name == "posix":
            _check_private(path)
    except OSError as error:
        raise SariError(
            f"cannot make the directory {path} ({error.strerror}): make its parent writable, "
            "or set SARI_REGISTRY_FILE to a file in a directory that is"
        ) from error


def _check_private(path: str) -> None:
    found = os.stat(path)
    if found.st_uid not in (os.geteuid(), 0) or (found.st_uid != os.geteuid() and found.st_mode & 0o022):
        raise SariError(
            f"{path} belongs to another user, who could read and replace what sari keeps there: {_ELSEWHERE}"
        )
    if found.st_mode & stat.S_ISVTX and os.listdir(path):
        # Such as /tmp. An empty one is a file system that was mounted for sari.
        raise SariError(f"{path} is shared with other users: {_ELSEWHERE}")
    if found.st_mode & 0o022:
        os.chmod(path, 0o700)
