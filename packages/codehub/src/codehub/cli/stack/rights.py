"""Privileges of the parts of `up`: the user of API and proxy, their environment, and the limit on open files."""

from __future__ import annotations

import os
import resource
import stat
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import codehub
from codehub.adapters.embedded.account import Account, may_read, server_account
from codehub.adapters.embedded.layout import readable_dir, write_private
from codehub.adapters.process.sandbox import tool_dirs
from codehub.adapters.secret_box import FILE_NAME as SECRETS_KEY
from codehub.adapters.secret_box import open_box
from codehub.cli.stack.children import Part
from codehub.domain.errors import Invalid
from codehub.settings import Settings

# Each connection through the proxy takes two descriptors; the usual soft limit is 1024.
_OPEN_FILES = 65_536
# Already applied by `up`, and not for a process that talks to workspaces.
_WITHHELD = ("CODEHUB_CONFIG_FILE", "CODEHUB_ADMIN_PASSWORD")


def unprivileged_account(settings: Settings, say: Callable[[str], None]) -> Account | None:
    """Return the user for API and proxy; None: the user who runs `up`.

    Raises Invalid if that user cannot read what it needs.
    """
    if os.geteuid() != 0 or settings.user == "root":
        return None
    account = server_account(settings.user, say)
    for file in (Path(sys.executable).resolve(), Path(codehub.__file__).resolve()):
        if (closed := _closed_to_others(file)) is not None:
            raise Invalid(
                f"user {settings.user}, which runs API and proxy, cannot read {closed}. Install CodeHub where it can (for "
                f"example in /opt/codehub; or chmod -R go+rX {closed}), or set CODEHUB_USER=root to run both as root."
            )
    return account


def _closed_to_others(file: Path) -> Path | None:
    """Return the part of CodeHub's own trees that others cannot read.

    Parent directories do not matter (see `unprivileged`).
    """
    tops = {*tool_dirs(), Path(codehub.__file__).resolve().parents[1]}
    for place in (file, *file.parents):
        needed = stat.S_IXOTH | stat.S_IROTH if place.is_dir() else stat.S_IROTH
        if place.stat().st_mode & needed != needed:
            return place
        if place in tops:
            break
    return None


def lent_files(settings: Settings, account: Account) -> dict[str, str]:
    """Return settings that name copies of root-only files that API and proxy need."""
    wanted = {
        "CODEHUB_PROFILES_FILE": settings.profiles_file,
        "KUBECONFIG": Path(settings.kubeconfig) if settings.kubeconfig else None,
        "CODEHUB_GIT_CA_FILE": settings.git_ca_file,
        "CODEHUB_SECRETS_KEY_FILE": None if settings.secrets_key else _secrets_key_file(settings),
    }
    place = readable_dir(settings.data_dir / "run" / "lent", account)
    for old in place.iterdir():
        old.unlink()
    lent: dict[str, str] = {}
    for name, path in wanted.items():
        if path is not None and path.is_file() and not may_read(path, account):
            copy = place / name.lower()
            write_private(copy, path.read_text())
            os.chown(copy, -1, account.gid)
            copy.chmod(0o640)
            lent[name] = str(copy)
    return lent


def _secrets_key_file(settings: Settings) -> Path:
    """Return the file of the key that encrypts users' secrets. Root creates it, so that API and coordinator share it."""
    if settings.secrets_key_file is not None:
        return settings.secrets_key_file
    open_box("", settings.data_dir)
    return settings.data_dir / SECRETS_KEY


def environment_of(
    part: Part, environment: Mapping[str, str], account: Account | None, less: Mapping[str, str]
) -> dict[str, str]:
    """`less` replaces settings of the parts that are not root."""
    kept = {name: value for name, value in environment.items() if name not in _WITHHELD}
    if account is not None and account.switched and not part.privileged:
        # Root's home is not accessible to it, which libraries treat as an error, unlike a missing home.
        kept |= {**less, "HOME": "/nonexistent", "USER": "codehub", "LOGNAME": "codehub"}
    return kept


def raise_open_files() -> None:
    """Raise the limit to the maximum allowed, for this process and its children."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, _OPEN_FILES)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
