"""xterm.js for the web terminal: three files of two npm packages in `IDE_DIR/xterm-VERSION`, all or none.

None of it is in the repository. npm fetches the packages, which are kept only if they match our lock file. CodeHub's image
has them already: its containers have neither npm nor a data directory of their own.
"""

from __future__ import annotations

import json
import shutil
import sys
from importlib.resources import files
from pathlib import Path
from typing import Final

from codehub.adapters.filesystem.remove import remove_tree
from codehub.adapters.ide.code_server import CodeServerLock
from codehub.adapters.ide.node import find_node
from codehub.adapters.ide.npm import only_one, readable_by_all, run_npm
from codehub.domain.errors import Terminal, Transient

# Where CodeHub's image has them prepared.
PREPARED: Final = Path(sys.prefix) / "share/codehub/ide"
# The files that the page loads, and their paths in the packages.
_FILES: Final = {
    "xterm.mjs": "@xterm/xterm/lib/xterm.mjs",
    "xterm.css": "@xterm/xterm/css/xterm.css",
    "addon-fit.mjs": "@xterm/addon-fit/lib/addon-fit.mjs",
}


class XtermInstall:
    """Installs xterm.js.

    Blocking: run it in a worker thread. A second install in the same directory waits for the first.
    """

    def __init__(self, ide_dir: Path) -> None:
        self._dir = ide_dir
        self._lock: dict[str, dict[str, str]] = json.loads(
            files("codehub.adapters.ide").joinpath("xterm.lock.json").read_text()
        )
        self.version = self._lock["@xterm/xterm"]["version"]
        name = f"xterm-{self.version}"
        self.home = PREPARED / name if (PREPARED / name).is_dir() else ide_dir / name
        self._partial = ide_dir / f"{name}.partial"

    @property
    def installed(self) -> bool:
        return self.home.is_dir()

    def files(self) -> dict[str, bytes]:
        """Return the files that the page loads, by name."""
        return {name: (self.home / name).read_bytes() for name in _FILES}

    def ensure(self) -> Path:
        """Install xterm.js if needed. Raises Transient if npm or the disk does not allow it now."""
        if self.installed:
            return self.home
        try:
            self._dir.mkdir(parents=True, exist_ok=True, mode=0o755)
            with only_one(self._dir / ".install-xterm.lock"):
                if not self.installed:
                    self._install()
        except OSError as error:
            raise Transient(
                f"xterm.js, which the web terminal needs, could not be written to {self._dir} ({error.strerror}); "
                "run `codehub ide install xterm` as the user who runs CodeHub"
            ) from error
        return self.home

    def _install(self) -> None:
        remove_tree(self._partial)
        work = self._partial / "npm"
        work.mkdir(parents=True, mode=0o755)
        (work / "package.json").write_text('{"private": true}\n')
        node = find_node(CodeServerLock.load().node, self._partial / "node")
        wanted = [f"{name}@{locked['version']}" for name, locked in self._lock.items()]
        if output := run_npm(node, work, "install", "--save-exact", *wanted):
            raise Transient(f"npm could not install xterm.js, which the web terminal needs: {output}")
        self._verify(work)
        for name, place in _FILES.items():
            shutil.copyfile(work / "node_modules" / place, self._partial / name)
        for extra in ("npm", "node"):
            remove_tree(self._partial / extra)
        readable_by_all(self._partial)
        self._partial.rename(self.home)

    def _verify(self, work: Path) -> None:
        recorded = json.loads((work / "node_modules/.package-lock.json").read_text())["packages"]
        found = {place.removeprefix("node_modules/"): entry.get("integrity") for place, entry in recorded.items()}
        expected = {name: locked["integrity"] for name, locked in self._lock.items()}
        if found != expected:
            remove_tree(self._partial)
            raise Terminal(
                f"xterm.js from the npm registry is not the one in the lock file ({found} instead of {expected}): "
                "nothing of it was kept"
            )
