"""Which system user runs what need not be root, and whether that user can reach what it needs.

PostgreSQL refuses to run as root, and API, proxy and Valkey have no need to. A CodeHub that is started as root runs them
as a system user of its own, which no other service shares, and creates it when it is missing. Modes of directories
outside the data directory are never changed: what that user cannot reach is an error that says so.
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
# Above these are people and, far above, workspaces (adapters/process/sandbox.py).
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
    # Whether it is another user than the one we are: then processes change to it and files are given to it.
    switched: bool

    @property
    def user(self) -> int | None:
        """For subprocess's `user`; None stays who we are."""
        return self.uid if self.switched else None

    @property
    def group(self) -> int | None:
        return self.gid if self.switched else None

    @property
    def extra_groups(self) -> list[int] | None:
        return [] if self.switched else None

    def own(self, path: Path) -> None:
        """Never through a link: the account may write where it is, and would be given whatever the link names."""
        if self.switched:
            os.chown(path, self.uid, self.gid, follow_symlinks=False)


def myself() -> Account:
    return Account(os.geteuid(), os.getegid(), switched=False)


def server_account(name: str = DEFAULT_USER, say: Callable[[str], None] = lambda message: None) -> Account:
    """The user that servers run as; created if we are root and it is missing. Raises Invalid for an unsafe one."""
    if os.geteuid() != 0:
        return myself()
    found = find_account(name)
    if found is None:
        say(f"creating the system user {name} for everything that need not be root")
        found = _create(name)
    return found


def find_account(name: str = DEFAULT_USER) -> Account | None:
    """The same without creating anything; None when the user does not exist."""
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
    """Why this user is not one of CodeHub's own."""
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
        # Also when it failed: another CodeHub may have been faster, or may hold the lock of the user database.
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
    """Give a tree that an earlier account owned to this one, once; whether there was something to do.

    No link is followed, and only what the earlier account owned is given. The top comes last: a crash on the way is
    noticed by the top still being another's.
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
            # A second name of a regular file may be outside of the tree.
            linked = stat.S_ISREG(info.st_mode) and info.st_nlink > 1
            if info.st_uid == before.st_uid and not linked:
                os.chown(name, account.uid, account.gid, dir_fd=fd, follow_symlinks=False)
    os.chown(top, account.uid, account.gid, follow_symlinks=False)
    return True


def barrier(path: Path, account: Account) -> Path | None:
    """The first directory on the way to `path` (itself included) that the account cannot enter; None when it can."""
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
    """Whether the account can open this file, which exists."""
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
