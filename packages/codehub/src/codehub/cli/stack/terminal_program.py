"""Installs the web terminal's files while CodeHub is already running: the API may not be allowed to write them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

from codehub.adapters.ide.xterm import XtermInstall
from codehub.domain.errors import CodeHubError


def install_in_background(data_dir: Path, say: Callable[[str], None]) -> None:
    """Install without blocking. Without a network, prints once what is missing."""
    install = XtermInstall(data_dir / "ide")
    if install.installed:
        return

    def work() -> None:
        try:
            install.ensure()
        except CodeHubError as error:
            say(f"the web terminal is not installed; run `codehub ide install xterm` later. {error}")

    threading.Thread(target=work, name="install xterm.js", daemon=True).start()
