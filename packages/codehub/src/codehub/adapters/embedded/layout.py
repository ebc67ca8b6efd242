"""Directories and secrets inside the data directory."""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import stat
import tempfile
from pathlib import Path

from codehub.adapters.embedded.account import Account
from codehub.domain.errors import Invalid

# sun_path holds 108 bytes. The longest name that we put into such a directory is ".s.PGSQL.5432.lock".
_LONGEST_SOCKET_DIR = 80


def private_dir(path: Path, account: Account) -> Path:
    """Create a directory that only its account and root can enter."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if account.switched:
            os.fchown(fd, account.uid, account.gid)
        os.fchmod(fd, 0o700)
    finally:
        os.close(fd)
    return path


def readable_dir(path: Path, account: Account) -> Path:
    """Create a directory that the account may enter and read, but not change."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        os.fchown(fd, os.geteuid(), account.gid)
        os.fchmod(fd, 0o750)
    finally:
        os.close(fd)
    return path


def write_for(path: Path, content: str, account: Account) -> None:
    """Write a file of the account in a directory that it can write to.

    Whatever exists at the path is replaced, not followed.
    """
    path.unlink(missing_ok=True)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "w") as file:
        if account.switched:
            os.fchown(fd, account.uid, account.gid)
        file.write(content)


def open_log(path: Path, account: Account) -> int:
    """Return a descriptor that appends to the account's log. A link in its place is removed, not followed."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    for _ in range(2):
        with contextlib.suppress(OSError):
            fd = os.open(path, flags, 0o600)
            found = os.fstat(fd)
            if stat.S_ISREG(found.st_mode) and found.st_nlink == 1:
                if account.switched:
                    os.fchown(fd, account.uid, account.gid)
                return fd
            os.close(fd)
        path.unlink(missing_ok=True)
    raise Invalid(f"{path} is not a file that can be written: remove it")


def socket_dir(data_dir: Path, name: str, account: Account) -> Path:
    """Return a private directory whose path is short enough for sockets.

    It is outside the data directory if that path is long.
    """
    wanted = data_dir / "run" / name
    if len(os.fsencode(wanted)) <= _LONGEST_SOCKET_DIR:
        wanted.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        return private_dir(wanted, account)
    digest = hashlib.sha256(os.fsencode(data_dir)).hexdigest()[:12]
    # The name includes the user, so that a directory of an earlier account is not taken over.
    owner = f"-{account.uid}" if account.switched else ""
    short = Path(tempfile.gettempdir()) / f"codehub-{digest}-{name}{owner}"
    try:
        short.mkdir(mode=0o700)
    except FileExistsError:
        info = short.lstat()
        if not stat.S_ISDIR(info.st_mode) or info.st_uid not in (account.uid, os.geteuid()):
            raise Invalid(
                f"{short} belongs to another user: remove it, or choose a shorter CODEHUB_DATA_DIR"
            ) from None
    return private_dir(short, account)


def kept_secret(path: Path) -> str:
    """Return a secret that is created once and kept in a file that only we can read."""
    try:
        return path.read_text().strip()
    except FileNotFoundError:
        value = secrets.token_urlsafe(24)
        write_private(path, value + "\n")
        return value


def write_private(path: Path, content: str) -> None:
    """Write a file that only we can read, completely or not at all."""
    staging = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(staging, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    staging.replace(path)
