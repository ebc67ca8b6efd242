"""Which directory is the workspace: one rule for the shim, the command line and the daemon."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sari.protocol.errors import Denied


class RefusedRoot(Denied):
    """This directory is no workspace."""


@dataclass(frozen=True, slots=True)
class Root:
    """A workspace root, and whether someone chose it (rather than: the client happened to start us there)."""

    path: str
    chosen: bool


def resolve_root(path: str, home: str) -> str:
    """The one spelling of a workspace root. Raises `RefusedRoot` for what nobody means to index."""
    expanded = os.path.join(home, path[2:]) if path.startswith("~/") else path
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
    """Refuse what the kernel makes up: reading it can block, have effects or tell secrets. Raises `RefusedRoot`."""
    for system in _SYSTEM:
        if resolved == system or resolved.startswith(system + "/"):
            raise RefusedRoot(f"{resolved} belongs to the system, and sari never opens it: {_HOW}")


_SYSTEM = ("/proc", "/sys", "/dev")
_HOW = "pass a project directory as `workspace`, set SARI_WORKSPACE_ROOT, or start the client inside the project"


def find_root(environ: Mapping[str, str], client_roots: Sequence[str], directory: str, home: str) -> Root:
    """The workspace when a call names none. The first rule that applies decides, even if what it says is refused."""
    named = environ.get("SARI_WORKSPACE_ROOT") or (client_roots[0] if client_roots else "")
    named = named or environ.get("CLAUDE_PROJECT_DIR") or ""
    if named:
        return Root(resolve_root(named, home), True)
    above = nearest_git(directory)
    if above is not None and os.path.realpath(above) != os.path.realpath(home):
        return Root(resolve_root(above, home), True)
    return Root(resolve_root(directory, home), False)


def nearest_git(directory: str) -> str | None:
    """The directory at or above this one that holds `.git` (a file in worktrees and submodules)."""
    current = os.path.abspath(directory)
    while True:
        if os.path.exists(os.path.join(current, ".git")):
            return current
        parent = os.path.dirname(current)
        if parent == current:
            return None
        current = parent


def path_of_uri(uri: str) -> str | None:
    """The path a client's root URI means; None for one that is no local file."""
    if not uri.startswith("file://"):
        return None
    from urllib.parse import unquote, urlsplit

    parts = urlsplit(uri)
    if parts.netloc not in ("", "localhost"):
        return None
    path = unquote(parts.path)
    # file:///C:/x on Windows.
    return path[1:] if len(path) > 2 and path[2] == ":" else path
