"""What every process workspace gets beside its IDE: a Python environment with pip, and Node with npm.

The workspace's user creates the environment in the workspace (`workspaced/home_setup.py`). This module provides pip, once
for all homes, so that none of them carries 10 MB of it into its archive.
"""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path

import structlog

from codehub.adapters.filesystem.remove import remove_tree
from codehub.adapters.ide.code_server import CodeServerInstall
from codehub.adapters.ide.npm import only_one, readable_by_all
from codehub.adapters.ide.python_packages import install_packages
from codehub.domain.errors import Transient

_log = structlog.get_logger()


class Toolchain:
    """Installs the tools. Blocking: run it in a worker thread."""

    def __init__(self, ide_dir: Path) -> None:
        self._dir = ide_dir
        self._code_server = CodeServerInstall(ide_dir)
        self._lock = Path(str(files("codehub.adapters.ide").joinpath("pip.txt")))
        found = re.search(r"^pip==([\w.]+)", self._lock.read_text(encoding="utf-8"), re.MULTILINE)
        assert found is not None, "the lock file names pip"
        self._pip = ide_dir / f"pip-{found[1]}"

    def node(self) -> Path | None:
        """Return the directory of `node` and `npm` once code-server is installed."""
        found = self._code_server.node_dir
        return found if (found / "npm").exists() else None

    def ensure_pip(self) -> Path | None:
        """Return a folder with pip's package, or None if it is unavailable: a workspace starts without pip too."""
        if self._pip.is_dir():
            return self._pip
        try:
            self._dir.mkdir(parents=True, exist_ok=True, mode=0o755)
            with only_one(self._dir / ".install-pip.lock"):
                if not self._pip.is_dir():
                    partial = self._pip.with_name(f"{self._pip.name}.partial")
                    remove_tree(partial)
                    install_packages(self._lock, ["--target", str(partial)])
                    readable_by_all(partial)
                    partial.rename(self._pip)
        except (Transient, OSError) as error:
            _log.warning("pip could not be installed for workspaces", error=str(error))
            return None
        return self._pip
