"""Installs what the web terminal needs while CodeHub already runs: the API itself may not be allowed to write it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

from codehub.adapters.ide.xterm import XtermInstall
from codehub.domain.errors import CodeHubError


def install_in_background(data_dir: Path, say: Callable[[str], None]) -> None:
    """Nobody waits for it. A machine without a network is told once what is missing."""
    install = XtermInstall(data_dir / "ide")
    if install.installed:
        return

    def work() -> None:
        try:
            install.ensure()
        except CodeHubError as error:
            say(f"the web terminal is not installed; run `codehub ide install xterm` later. {error}")

    threading.Thread(target=work, name="install xterm.js", daemon=True).start()
