"""The system user for processes that need not be root, and checks of what that user can reach.

PostgreSQL refuses to run as root, and the API, the proxy and Valkey do not need root. If CodeHub is started as root, it
runs them as a dedicated system user that no other service shares, and creates that user if it is missing. CodeHub never
changes modes of directories outside the data directory: if the user cannot reach a path, an error says so.
"""

from __future__ import annotations

import os
import pwd
import shutil
import stat
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from codehub.domain.errors import Invalid

DEFAULT_USER = "codehub"
# Higher uids belong to people and, far above, to workspaces (adapters/process/sandbox.py).
_SYSTEM_UIDS = range(1, 1000)
_NO_LOGIN = ("nologin", "false")
# Other services run as these.
_SHARED_NAMES = frozenset({"nobody", "daemon", "bin", "sys", "www-data", "postgres"})
_CREATE_TRIES = 20
_CREATE_RETRY_S = 0.5


@dataclass(frozen=True, slots=True)
class Account:
    uid: int
    gid: int
    # Whether this user differs from the current one. If so, processes switch to it and files are given to it.
    switched: bool

    @property
    def user(self) -> int | None:
        """Return the value for subprocess's `user`. None keeps the current user."""
        return self.uid if self.switched else None

    @property
    def group(self) -> int | None:
        return self.gid if self.switched else None

    @property
    def extra_groups(self) -> list[int] | None:
        return [] if self.switched else None

    def own(self, path: Path) -> None:
        """Give a path to the account.

        Never follows a link: the account may write there and could gain whatever the link names.
        """
        if self.switched:
            os.chown(path, self.uid, self.gid, follow_symlinks=False)


def myself() -> Account:
    return Account(os.geteuid(), os.getegid(), switched=False)


def server_account(name: str = DEFAULT_USER, say: Callable[[str], None] = lambda message: None) -> Account:
    """Return the user that servers run as, created if we are root and it is missing. Raises Invalid if it is unsafe."""
    if os.geteuid() != 0:
        return myself()
    found = find_account(name)
    if found is None:
        say(f"creating the system user {name} for everything that need not be root")
        found = _create(name)
    return found


def find_account(name: str = DEFAULT_USER) -> Account | None:
    """Like `server_account`, without creating anything. Returns None if the user does not exist."""
    if os.geteuid() != 0:
        return myself()
    try:
        entry = pwd.getpwnam(name)
    except KeyError:
        return None
    if (why := _unsafe(entry)) is not None:
        raise Invalid(
            f"CODEHUB_USER={name}: {why}. Name a system user that nothing else uses; CodeHub creates it if it is missing."
        )
    return Account(entry.pw_uid, entry.pw_gid, switched=True)


def _unsafe(entry: pwd.struct_passwd) -> str | None:
    """Return why this user is not a dedicated one of CodeHub."""
    if entry.pw_uid == 0 or entry.pw_gid == 0:
        return "it has root's uid or group"
    if entry.pw_name in _SHARED_NAMES:
        return "other services run as this user"
    if entry.pw_uid not in _SYSTEM_UIDS and Path(entry.pw_shell).name not in _NO_LOGIN:
        return "it is a person's account (not a system uid, and it has a login shell)"
    return None


def _create(name: str) -> Account:
    made: subprocess.CompletedProcess[str] | None = None
    for _ in range(_CREATE_TRIES):
        if commands := _create_commands(name):
            made = subprocess.run(commands[0], capture_output=True, text=True, check=False, cwd="/")
        # Also after a failure: another CodeHub may have created it first, or may hold the lock of the user database.
        if (found := find_account(name)) is not None:
            return found
        if made is None:
            break
        time.sleep(_CREATE_RETRY_S)
    why = "neither useradd nor adduser is installed" if made is None else made.stderr.strip()[-300:]
    raise Invalid(
        f"the system user {name} could not be created ({why}). PostgreSQL, API and proxy run as this user. "
        f"Create it (useradd --system --user-group --shell /usr/sbin/nologin {name}), or run CodeHub as an ordinary user."
    )


def _create_commands(name: str) -> list[list[str]]:
    commands = []
    path = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"
    if program := shutil.which("useradd", path=path):
        options = ["--system", "--user-group", "--no-create-home", "--home-dir", "/nonexistent"]
        shell = shutil.which("nologin", path=path) or "/bin/false"
        commands.append([program, *options, "--shell", shell, "--comment", "CodeHub", name])
    if program := shutil.which("adduser", path=path):  # BusyBox
        commands.append([program, "-S", "-D", "-H", "-h", "/nonexistent", "-s", "/bin/false", name])
    return commands


def give_tree(top: Path, account: Account) -> bool:
    """Give a tree that an earlier account owned to this one, once. Return whether there was anything to do.

    No link is followed, and only files of the earlier account are given. The top directory comes last: after a crash, it
    still belongs to the earlier account.
    """
    try:
        before = top.lstat()
    except FileNotFoundError:
        return False
    if not account.switched or before.st_uid == account.uid or not stat.S_ISDIR(before.st_mode):
        return False
    for _, directories, files, fd in os.fwalk(top, topdown=False, follow_symlinks=False):
        for name in (*files, *directories):
            info = os.stat(name, dir_fd=fd, follow_symlinks=False)
            # Another hard link to a regular file may be outside the tree.
            linked = stat.S_ISREG(info.st_mode) and info.st_nlink > 1
            if info.st_uid == before.st_uid and not linked:
                os.chown(name, account.uid, account.gid, dir_fd=fd, follow_symlinks=False)
    os.chown(top, account.uid, account.gid, follow_symlinks=False)
    return True


def barrier(path: Path, account: Account) -> Path | None:
    """Return the first directory on the way to `path` (itself included) that the account cannot enter, or None."""
    if not account.switched:
        return None
    for directory in [*reversed(path.parents), path]:
        try:
            info = directory.stat()
        except FileNotFoundError:
            return None
        if stat.S_ISDIR(info.st_mode) and not _granted(info, account, stat.S_IXUSR):
            return directory
    return None


def may_read(path: Path, account: Account) -> bool:
    """Return whether the account can open this existing file."""
    return barrier(path.parent, account) is None and (
        not account.switched or _granted(path.stat(), account, stat.S_IRUSR)
    )


def _granted(info: os.stat_result, account: Account, owner_bit: int) -> bool:
    if info.st_uid == account.uid:
        return bool(info.st_mode & owner_bit)
    return bool(info.st_mode & (owner_bit >> 3 if info.st_gid == account.gid else owner_bit >> 6))


def require_reach(path: Path, account: Account) -> None:
    if blocked := barrier(path, account):
        name = pwd.getpwuid(account.uid).pw_name
        raise Invalid(
            f"CODEHUB_DATA_DIR={path}: user {name}, which runs the embedded PostgreSQL, cannot enter {blocked}. "
            f"Choose a directory it can reach (the default is /var/lib/codehub), or allow it: chmod o+x {blocked}"
        )
