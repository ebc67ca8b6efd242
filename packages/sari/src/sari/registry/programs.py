"""Which programs sari starts, and with which environment: none that a repository provides.

An environment can carry parts of a repository: a relative entry of `PATH`, an entry for its `bin`, a `PYTHONPATH` that a
client's project configuration or direnv has set. The daemon outlives the client that started it and serves other
repositories, so it takes over none of them. Standard library only, quick to import.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Mapping

# What these name is loaded by the programs that sari starts. A language server gets its own on top.
_REMOVED = ("PYTHON", "LD_PRELOAD", "LD_AUDIT", "DYLD_", "GIT_", "NODE_", "npm_", "BASH_ENV", "RIPGREP_CONFIG_PATH")
# Lists of folders, in which an empty or relative entry depends on the current one.
_SEARCHED = ("PATH", "LD_LIBRARY_PATH")

# The workspaces of this process.
_workspaces: set[str] = set()


def note_workspace(root: str | os.PathLike[str]) -> None:
    """Never start a program from this folder: it is opened as a workspace."""
    _workspaces.add(os.path.realpath(root))


def forget_workspace(root: str | os.PathLike[str]) -> None:
    """The folder is no longer open."""
    _workspaces.discard(os.path.realpath(root))


def python_command(module: str, *arguments: str) -> list[str]:
    """Return the command that runs one of sari's modules in another process.

    Without `-P`, Python would search the current folder for modules first, and without `-E`, what `PYTHONPATH` names. Not
    `-I`, because sari can be installed in the user's own packages.
    """
    return [sys.executable, "-E", "-P", "-m", module, *arguments]


def find_program(name: str, environ: Mapping[str, str] | None = None) -> str | None:
    """Return the absolute path of a program on `PATH`, outside of all workspaces; None if there is none."""
    path = search_path((os.environ if environ is None else environ).get("PATH", os.defpath))
    for folder in path.split(os.pathsep):
        program = os.path.join(folder, name)
        if (
            folder
            and os.path.isfile(program)
            and os.access(program, os.X_OK)
            and not _is_inside(program, (*_workspaces,))
        ):
            return program
    return None


def search_path(path: str, outside: Collection[str | os.PathLike[str]] = ()) -> str:
    """Return a list of folders without those that are relative, or inside a workspace or one of these folders."""
    roots = {*_workspaces, *map(os.path.realpath, outside)}
    kept = [one for one in path.split(os.pathsep) if os.path.isabs(one) and not _is_inside(one, roots)]
    return os.pathsep.join(kept)


def clean_environment(environ: Mapping[str, str], outside: Collection[str | os.PathLike[str]] = ()) -> dict[str, str]:
    """Return the environment for another process, without what may come from a repository."""
    kept = {name: value for name, value in environ.items() if not name.startswith(_REMOVED)}
    for name in _SEARCHED:
        if name in kept:
            kept[name] = search_path(kept[name], outside)
    return kept


def _is_inside(path: str, roots: Collection[str]) -> bool:
    real = os.path.realpath(path)
    return any(real == root or real.startswith(root.rstrip(os.sep) + os.sep) for root in roots)
