"""Under which user the embedded servers run, and whether that user can reach what it needs.

PostgreSQL refuses to run as root, so a root CodeHub runs its servers as an unprivileged user of the system. Modes of
directories outside the data directory are never changed: what that user cannot reach is an error that says so.
"""

from __future__ import annotations

import os
import pwd
import stat
from dataclasses import dataclass
from pathlib import Path

from codehub.domain.errors import Invalid

# The first that exists. PostgreSQL's initdb needs a name for its uid, so a bare number won't do. Workspaces have uids of
# their own and are never one of these.
_CANDIDATES = ("codehub", "nobody")


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
        if self.switched:
            os.chown(path, self.uid, self.gid)


def server_account() -> Account:
    if os.geteuid() != 0:
        return Account(os.geteuid(), os.getegid(), switched=False)
    for name in _CANDIDATES:
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        if entry.pw_uid != 0:
            return Account(entry.pw_uid, entry.pw_gid, switched=True)
    raise Invalid(
        "PostgreSQL does not run as root, and this system has no user to run it as. "
        "Add one (useradd --system codehub) or run CodeHub as another user."
    )


def barrier(path: Path, account: Account) -> Path | None:
    """The first directory on the way to `path` (itself included) that the account cannot enter; None when it can."""
    if not account.switched:
        return None
    for directory in [*reversed(path.parents), path]:
        try:
            info = directory.stat()
        except FileNotFoundError:
            return None
        if not stat.S_ISDIR(info.st_mode):
            continue
        if info.st_uid == account.uid:
            allowed = info.st_mode & stat.S_IXUSR
        elif info.st_gid == account.gid:
            allowed = info.st_mode & stat.S_IXGRP
        else:
            allowed = info.st_mode & stat.S_IXOTH
        if not allowed:
            return directory
    return None


def require_reach(path: Path, account: Account) -> None:
    if blocked := barrier(path, account):
        name = pwd.getpwuid(account.uid).pw_name
        raise Invalid(
            f"CODEHUB_DATA_DIR={path}: user {name}, which runs the embedded PostgreSQL, cannot enter {blocked}. "
            f"Choose a directory it can reach (the default is /var/lib/codehub), or allow it: chmod o+x {blocked}"
        )
