"""The real code-server, pip and xterm.js, installed once per checkout into `.parts/ide` (1–2 minutes the first time)."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from codehub.adapters.ide.code_server import CodeServerInstall
from codehub.adapters.ide.toolchain import Toolchain
from codehub.adapters.ide.xterm import XtermInstall
from codehub.domain.model import Progress

IDE_DIR = Path(__file__).resolve().parents[2] / ".parts/ide"


def installed_code_server() -> Path:
    """Return the directory of the `code-server` program, installing it if needed. Waits for concurrent installs."""
    return CodeServerInstall(IDE_DIR).ensure(_tell)


def put_tools(data_dir: Path) -> None:
    """Put xterm.js and pip into a CodeHub's data directory, as its first terminal and workspace would install them."""
    pip = Toolchain(IDE_DIR).ensure_pip()
    assert pip is not None, "pip could not be installed"
    (data_dir / "ide").mkdir(parents=True, exist_ok=True, mode=0o755)
    for source in (XtermInstall(IDE_DIR).ensure(), pip):
        target = data_dir / "ide" / source.name
        if not target.exists():
            # Nothing writes to them, so hard links do: a thousand files are copied in 0.4 s of CPU and linked in 0.03.
            same_disk = source.stat().st_dev == target.parent.stat().st_dev
            shutil.copytree(source, target, copy_function=os.link if same_disk else shutil.copy2)


def _tell(progress: Progress) -> None:
    print(f"{progress.step} {progress.done}/{progress.total}", flush=True)


if __name__ == "__main__":
    # Tests without a network need them before they start: pip and xterm.js for each tested CodeHub, code-server for images.
    assert Toolchain(IDE_DIR).ensure_pip() is not None, "pip could not be installed"
    print(installed_code_server() if sys.argv[1:] == ["code-server"] else XtermInstall(IDE_DIR).ensure())
