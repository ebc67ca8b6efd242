"""JupyterLab for the process runtime: installed into `IDE_DIR/jupyterlab-VERSION`, completely or not at all.

It has its own Python environment, which workspaces cannot change. Its kernels run in the workspace's environment, so that
`%pip install` works: `kernel.py` adds the kernel's packages after those of the workspace.
"""

from __future__ import annotations

import json
import re
import subprocess
from importlib.resources import files
from pathlib import Path

from codehub.adapters.base_python import base_python
from codehub.adapters.filesystem.remove import remove_tree
from codehub.adapters.ide.npm import only_one, readable_by_all
from codehub.adapters.ide.python_packages import install_packages
from codehub.domain.errors import Transient
from codehub.domain.model import Progress
from codehub.ports.fence import Report

_START = """#!/bin/sh
# Its own environment, found from here: nothing in it names the place where it was installed.
here=$(dirname "$(dirname "$(readlink -f "$0")")")
exec "$here/python/bin/python" -P -m jupyterlab "$@"
"""
# Runs in the workspace's Python. The workspace's packages come first on the path, then the rest of the kernel.
_KERNEL = """import glob, os, sys
here = os.path.dirname(os.path.abspath(__file__))
sys.path[:] = [place for place in sys.path if os.path.abspath(place or ".") != here]
sys.path += glob.glob(os.path.join(here, "python", "lib", "python*", "site-packages"))
from ipykernel import kernelapp
kernelapp.launch_new_instance()
"""
_SPEC = {
    # Through `env`: Jupyter would replace a bare `python3` with its own interpreter.
    # Jupyter replaces `{prefix}` with the place of its environment: a workspace may see it elsewhere than the installer.
    "argv": ["/usr/bin/env", "python3", "{prefix}/../kernel.py", "-f", "{connection_file}"],
    "display_name": "Python 3",
    "language": "python",
    "metadata": {"debugger": True},
}


class JupyterLabInstall:
    """Installs JupyterLab.

    Blocking: run it in a worker thread. A second install in the same directory waits for the first.
    """

    def __init__(self, ide_dir: Path) -> None:
        self._dir = ide_dir
        self._lock = Path(str(files("codehub.adapters.ide").joinpath("jupyterlab.txt")))
        found = re.search(r"^jupyterlab==([\w.]+)", self._lock.read_text(encoding="utf-8"), re.MULTILINE)
        assert found is not None, "the lock file names JupyterLab"
        self.home = ide_dir / f"jupyterlab-{found[1]}"
        self._partial = ide_dir / f"{self.home.name}.partial"

    @property
    def bin_dir(self) -> Path:
        return self.home / "bin"

    @property
    def installed(self) -> bool:
        return (self.bin_dir / "jupyter-lab").is_file()

    def ensure(self, report: Report) -> Path:
        """Install JupyterLab if needed and return the directory of `jupyter-lab`."""
        if not self.installed or _has_old_kernel(self.home):
            self._dir.mkdir(parents=True, exist_ok=True, mode=0o755)
            with only_one(self._dir / ".install-jupyterlab.lock"):
                if not self.installed:
                    self._install(report)
                elif _has_old_kernel(self.home):
                    write_kernel(self.home)
        return self.bin_dir

    def _install(self, report: Report) -> None:
        report(Progress("install jupyterlab: python", 0, 3, "steps"))
        remove_tree(self._partial)
        self._partial.mkdir(mode=0o755)
        environment = self._partial / "python"
        make = [str(base_python()), "-I", "-m", "venv", "--without-pip", str(environment)]
        done = subprocess.run(make, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise Transient(f"no environment for JupyterLab could be made: {(done.stderr or done.stdout)[-300:]}")
        report(Progress("install jupyterlab: packages", 1, 3, "steps"))
        try:
            install_packages(self._lock, (), environment / "bin/python")
        except Transient as error:
            raise Transient(f"JupyterLab could not be installed from PyPI: {error}") from error
        report(Progress("install jupyterlab: kernel", 2, 3, "steps"))
        write_kernel(self._partial)
        start = self._partial / "bin/jupyter-lab"
        start.parent.mkdir()
        start.write_text(_START)
        start.chmod(0o755)
        readable_by_all(self._partial)
        self._partial.rename(self.home)
        report(Progress("install jupyterlab", 3, 3, "steps"))


def _kernels(home: Path) -> dict[Path, str]:
    spec = home / "python/share/jupyter/kernels/python3/kernel.json"
    return {home / "kernel.py": _KERNEL, spec: json.dumps(_SPEC, indent=1) + "\n"}


def _has_old_kernel(home: Path) -> bool:
    """Whether an earlier CodeHub wrote the kernel. It named the place of the install, and did not work from elsewhere."""
    return any(not path.is_file() or path.read_text() != content for path, content in _kernels(home).items())


def write_kernel(home: Path) -> None:
    """Write the kernel's files, for an environment at `home/python`.

    Workspaces may be reading the old ones: each is replaced at once.
    """
    for path, content in _kernels(home).items():
        path.parent.mkdir(parents=True, exist_ok=True)
        new = path.with_name(f"{path.name}.new")
        new.write_text(content)
        new.chmod(0o644)
        new.replace(path)
