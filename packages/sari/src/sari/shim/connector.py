"""Connects the shim to a daemon: finds or starts one, retries interrupted starts, and upgrades an older daemon."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Mapping

from sari import __version__
from sari.protocol.errors import SariError
from sari.registry.layout import Layout, check_outside, find_layout
from sari.registry.roots import RefusedRoot
from sari.registry.settings import Settings
from sari.registry.usual import connect_usual
from sari.shim.imports import IMPORTING
from sari.shim.link import Link
from sari.shim.workspace import WorkspaceRoot

TYPE_CHECKING = False
if TYPE_CHECKING:
    from sari.registry.find import Finder

# A start that was killed midway is retried; one that reported an error is not.
_START_ATTEMPTS = 15
_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 0.5


class Connected:
    """A link to a daemon, and the client's workspace."""

    __slots__ = ("chosen", "link", "root", "root_error")

    def __init__(self, link: Link, root: str, root_error: str, chosen: bool) -> None:
        self.link = link
        self.root = root
        self.root_error = root_error
        self.chosen = chosen


class Connector:
    """Makes connection attempts for one shim, one at a time."""

    def __init__(self, environ: Mapping[str, str], flags: Mapping[str, str], workspace: WorkspaceRoot) -> None:
        self._environ = environ
        self._flags = flags
        self._workspace = workspace

    def connect(self, warm: bool) -> Connected | str | None:
        """Return a connected daemon, or an error. `warm`: no request waits, so an unchosen directory gets none."""
        try:
            return self._connect(warm)
        except SariError as error:
            return str(error)
        except Exception as error:  # noqa: BLE001 - the client must receive an answer, whatever the error
            print(f"sari: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
            return f"sari could not reach its daemon ({type(error).__name__}: {error}): run `sari doctor`"

    def _connect(self, warm: bool) -> Connected | None:
        root, root_error, chosen = "", "", False
        try:
            root, chosen = self._workspace.find()
        except RefusedRoot as error:
            root_error = str(error)
        if warm and not chosen:
            return None
        layout, settings = find_layout(self._environ), Settings.from_environ(self._environ)
        check_outside(layout, root, self._environ)
        usual = connect_usual(layout, root or None, __version__)
        link = Link(*usual) if usual is not None else self._find_or_start(layout, settings, root)
        return Connected(link, root, root_error, chosen)

    def _find_or_start(self, layout: Layout, settings: Settings, root: str) -> Link:
        with IMPORTING:
            from sari.registry.find import Finder
            from sari.registry.start import StartCutOff

        port = self._flags.get("daemon-port")
        finder = Finder(layout, settings, __version__, int(port) if port else None)
        for attempt in range(1, _START_ATTEMPTS + 1):
            try:
                found = finder.find_or_start(root or None)
                break
            except StartCutOff:
                if attempt == _START_ATTEMPTS:
                    raise
                time.sleep(min(_PAUSE_S * attempt, _LONGEST_PAUSE_S))
        if found.older:
            threading.Thread(target=_upgrade, args=(finder,), name="sari-upgrade", daemon=True).start()
        return Link(found.sock, found.entry.boot_id)


def _upgrade(finder: Finder) -> None:
    try:
        finder.upgrade()
    except SariError as error:
        # The old daemon keeps serving. The failure is logged; the client is not affected.
        print(f"sari: the daemon could not be upgraded: {error}", file=sys.stderr, flush=True)
