"""Connects to the daemon in the usual case: the registry names a daemon of our own version, and it answers.

`Finder` knows every case. Loading it takes longer than a search, so whoever starts a process for one request tries this
first. Anything unusual is left to `Finder`: no registry, another version, a daemon that is stopped, draining or gone.
This module and what it imports must stay small: no `dataclasses`, no `subprocess`.
"""

from __future__ import annotations

import json
import socket

from sari.registry import dial
from sari.registry.layout import Layout
from sari.registry.processes import is_stopped

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def connect_usual(layout: Layout, root: str | None, version: str) -> tuple[socket.socket, str] | None:
    """Return an authenticated connection and the daemon's `boot_id`; None if `Finder` has to decide."""
    try:
        with open(layout.registry_file, encoding="utf-8") as file:
            daemon = _daemon(json.load(file), root)
        if daemon["version"] != version or daemon.get("draining") or is_stopped(daemon["pid"]):
            return None
        sock = dial.connect(daemon["host"], daemon["port"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
        return None
    try:
        identity = dial.identify(sock, daemon["token"], dial.IDENTIFY_TIMEOUT_S)
        if identity.version == version and not identity.draining:
            return sock, identity.boot_id
    except (OSError, dial.Answered, KeyError, AttributeError):
        pass
    sock.close()
    return None


def _daemon(registry: dict[str, Any], root: str | None) -> dict[str, Any]:
    """Return the daemon that serves a root, or the only one. Raises KeyError and others if it is not that clear."""
    daemons: dict[str, Any] = registry["daemons"]
    place = registry["workspaces"].get(root)
    if place is not None and place["boot_id"] in daemons:
        found: dict[str, Any] = daemons[place["boot_id"]]
        return found
    if len(daemons) != 1:
        raise KeyError("no daemon, or several")
    return dict(next(iter(daemons.values())))
