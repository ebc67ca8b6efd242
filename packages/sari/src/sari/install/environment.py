"""Locations on this machine, determined once when a command starts: the home, sari's data folder, sari's program."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from sari.install.application import own_application
from sari.install.clients import Launch, Machine
from sari.install.errors import InstallError
from sari.install.receipts import Receipts
from sari.registry.layout import find_layout, home_directory
from sari.registry.roots import nearest_git

# Variables that determine which registry and daemon sari uses. Several clients clear the environment of programs that
# they start, so a user who sets one of these needs it in the client's configuration too.
CARRIED = ("SARI_REGISTRY_FILE", "SARI_DAEMON_PORT", "SARI_HTTP_PORT")


def data_folder(environment: Mapping[str, str]) -> Path:
    """Return the registry's folder, which contains all of sari's files."""
    return Path(find_layout(environment).data_dir)


def machine(environment: Mapping[str, str]) -> Machine:
    return Machine(Path(home_directory(environment)), environment)


def receipts(environment: Mapping[str, str]) -> Receipts:
    return Receipts(data_folder(environment) / "install")


def program() -> str:
    """Return the absolute path that starts this sari. Links are kept: an upgrade moves the link, not the path.

    A managed installation always returns its command, however this process was started: the path of one version's
    program (which is what Windows reports) is removed with that version.
    """
    own = own_application()
    if own is not None and own.current() is not None:
        return str(own.command)
    called = Path(sys.argv[0])
    if called.name in ("sari", "sari.exe", "sari.cmd"):
        found = called if called.parent != Path() else Path(shutil.which(str(called)) or called)
        if os.access(found, os.X_OK):
            return os.path.abspath(found)
    beside = Path(sys.executable).with_name("sari.exe" if os.name == "nt" else "sari")
    if os.access(beside, os.X_OK):
        return str(beside)
    raise InstallError(
        "the `sari` program was not found beside this Python. Install sari with bootstrap.sh, or with pip into an "
        "environment, and run that environment's `sari install`."
    )


def launch(environment: Mapping[str, str], command: str | None = None) -> Launch:
    """Return how clients should start this sari."""
    carried = {name: environment[name] for name in CARRIED if environment.get(name)}
    if "SARI_REGISTRY_FILE" in carried:
        carried["SARI_REGISTRY_FILE"] = find_layout(environment).registry_file
    return Launch(command or program(), environment=carried)


def project_root(start: Path) -> Path:
    """Return the nearest folder with `.git` at or above `start`, else `start`."""
    return Path(nearest_git(str(start)) or start)
