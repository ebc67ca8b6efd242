"""Which programs sari starts, and with which environment: none that a repository provides.

An environment can carry parts of a repository: a relative entry of `PATH`, an entry for its `bin`, a `PYTHONPATH` that a
client's project configuration or direnv has set. The daemon outlives the client that started it and serves other
repositories, so it takes over none of them. Standard library only, quick to import.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Iterable, Mapping

from sari.registry.layout import home_of, is_within

# What these name is loaded by the programs that sari starts. A language server gets its own on top.
_REMOVED = ("PYTHON", "LD_PRELOAD", "LD_AUDIT", "DYLD_", "GIT_", "NODE_", "npm_", "BASH_ENV", "RIPGREP_CONFIG_PATH")
# Lists of folders, in which an empty or relative entry depends on the current one.
_SEARCHED = ("PATH", "LD_LIBRARY_PATH")
# Where programs are installed if `PATH` does not say it: a desktop starts its applications with a short one.
_USUAL = (
    "/usr/local/bin", "/usr/bin", "/bin", "/opt/homebrew/bin", "/run/current-system/sw/bin",
    "/nix/var/nix/profiles/default/bin",
)  # fmt: skip
_USUAL_OF_HOME = (".local/bin", ".nix-profile/bin")

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


def find_program(
    name: str, environ: Mapping[str, str] | None = None, outside: Iterable[str | os.PathLike[str]] = ()
) -> str | None:
    """Return the absolute path of a program on `PATH` or where programs usually are, outside of all workspaces and these
    folders; None if there is none.
    """
    foreign = _Foreign(os.environ if environ is None else environ, outside)
    for folder in foreign.folders():
        program = os.path.join(folder, name)
        if os.path.isfile(program) and os.access(program, os.X_OK) and not foreign.holds(program, folder):
            return program
    return None


def program_path(environ: Mapping[str, str], outside: Iterable[str | os.PathLike[str]] = ()) -> str:
    """Return `PATH` without what a repository may have added, and with the folders where programs usually are."""
    return os.pathsep.join(_Foreign(environ, outside).folders())


def search_path(
    path: str, outside: Iterable[str | os.PathLike[str]] = (), environ: Mapping[str, str] | None = None
) -> str:
    """Return a list of folders without those that are relative, or inside a workspace or one of these folders."""
    return os.pathsep.join(_Foreign(os.environ if environ is None else environ, outside).kept(path))


def clean_environment(environ: Mapping[str, str], outside: Collection[str | os.PathLike[str]] = ()) -> dict[str, str]:
    """Return the environment for another process, without what may come from a repository."""
    kept = {name: value for name, value in environ.items() if not name.startswith(_REMOVED)}
    for name in _SEARCHED:
        if name in kept:
            kept[name] = search_path(kept[name], outside, environ)
    return kept


class _Foreign:
    """What repositories provide: the workspaces of this process and some folders. The home directory and those above it
    hold the user's own programs, too, so they are no repositories. Neither is `/usr` or Homebrew's folder, as far as the
    usual folders are concerned.
    """

    def __init__(self, environ: Mapping[str, str], outside: Iterable[str | os.PathLike[str]]) -> None:
        self._environ = environ
        home = home_of(environ)
        chosen = {*_workspaces, *map(os.path.realpath, outside)}
        self._roots = [root for root in chosen if home is None or not is_within(home, root)]
        self._usual: list[str] = []
        if os.name == "posix":
            self._usual = [*_USUAL, *(os.path.join(home, one) for one in _USUAL_OF_HOME if home is not None)]
        # Compared without following links, because a link may lead into a repository.
        self._less = [root for root in self._roots if not any(is_within(one, root) for one in self._usual)]

    def holds(self, path: str, folder: str) -> bool:
        """Whether a repository provides this path of a folder."""
        real = os.path.realpath(path)
        return any(is_within(real, root) for root in (self._less if folder in self._usual else self._roots))

    def kept(self, path: str) -> list[str]:
        return [one for one in path.split(os.pathsep) if os.path.isabs(one) and not self.holds(one, one)]

    def folders(self) -> list[str]:
        usual = [one for one in self._usual if os.path.isdir(one) and not self.holds(one, one)]
        return list(dict.fromkeys([*self.kept(self._environ.get("PATH", os.defpath)), *usual]))
