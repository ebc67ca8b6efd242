"""Determines the workspace directory: one rule for the shim, the command line and the daemon."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from sari.protocol.errors import Denied


class RefusedRoot(Denied):
    """Raised when a directory cannot be a workspace."""


class Root:
    """A workspace root. `chosen` is False if it is merely the directory in which the client started sari."""

    __slots__ = ("chosen", "path")

    def __init__(self, path: str, chosen: bool) -> None:
        self.path = path
        self.chosen = chosen


def resolve_root(path: str, home: str) -> str:
    """Return the canonical path of a workspace root. Raises `RefusedRoot` for directories that should not be indexed."""
    expanded = os.path.join(home, path[2:]) if path.startswith("~/") else path
    if "\0" in path:
        raise RefusedRoot("`workspace` holds a NUL character: pass the workspace's root as `workspace`")
    resolved = os.path.realpath(expanded)
    if not os.path.isdir(resolved):
        raise RefusedRoot(f"{path} is not a directory: pass the workspace's root as `workspace`")
    if resolved == os.path.realpath(home):
        raise RefusedRoot(f"{resolved} is the home directory, which sari does not index: {_HOW}")
    if os.path.dirname(resolved) == resolved:
        raise RefusedRoot(f"{resolved} is the root of the file system, which sari does not index: {_HOW}")
    check_not_system(resolved)
    return resolved


def check_not_system(resolved: str) -> None:
    """Refuse kernel file systems: reading them can block, have side effects or reveal secrets. Raises `RefusedRoot`."""
    for system in _SYSTEM:
        if resolved == system or resolved.startswith(system + "/"):
            raise RefusedRoot(f"{resolved} belongs to the system, and sari never opens it: {_HOW}")


_SYSTEM = ("/proc", "/sys", "/dev")
_HOW = "pass a project directory as `workspace`, set SARI_WORKSPACE_ROOT, or start the client inside the project"


def find_root(environ: Mapping[str, str], client_roots: Sequence[str], directory: str, home: str) -> Root:
    """Return the workspace of a call that names none. The first rule that applies decides, even if its result is
    refused.
    """
    named = environ.get("SARI_WORKSPACE_ROOT") or (client_roots[0] if client_roots else "")
    named = named or environ.get("CLAUDE_PROJECT_DIR") or ""
    if named:
        return Root(resolve_root(named, home), True)
    above = nearest_git(directory)
    if above is not None and os.path.realpath(above) != os.path.realpath(home):
        return Root(resolve_root(above, home), True)
    return Root(resolve_root(directory, home), False)


def nearest_git(directory: str) -> str | None:
    """Return the nearest directory, from this one upwards, that contains `.git` (a file in worktrees and submodules)."""
    current = os.path.abspath(directory)
    while True:
        if os.path.exists(os.path.join(current, ".git")):
            return current
        parent = os.path.dirname(current)
        if parent == current:
            return None
        current = parent


def path_of_uri(uri: str) -> str | None:
    """Return the path of a client's root URI; None if it is not a local file."""
    if not uri.startswith("file://"):
        return None
    from urllib.parse import unquote, urlsplit

    parts = urlsplit(uri)
    if parts.netloc not in ("", "localhost"):
        return None
    path = unquote(parts.path)
    # file:///C:/x on Windows.
    return path[1:] if len(path) > 2 and path[2] == ":" else path
