"""Installs a user's dotfiles: clones them to ~/.dotfiles and runs their install script, or links the files.

A separate program, like `clone`. No file of the user is lost: an existing file is kept as NAME.bak.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

if not __package__:
    sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    __package__ = os.path.basename(os.path.dirname(os.path.abspath(__file__)))
    __import__(__package__)

from .clone import Clone, Failed, clean_up_when_stopped, write_result
from .git_errors import Trouble, explain

# In the order of GitHub Codespaces.
SCRIPTS = (
    "install.sh",
    "install",
    "bootstrap.sh",
    "bootstrap",
    "script/bootstrap",
    "setup.sh",
    "setup",
    "script/setup",
)
RUNNING = "running"  # begins the line before the output of the script
_NOT_LINKED = frozenset({".git", ".gitignore", ".gitmodules", ".gitattributes", ".github", ".gitlab-ci.yml", ".."})


def script_of(folder: str) -> str | None:
    for name in SCRIPTS:
        path = os.path.join(folder, name)
        if os.path.isfile(path):
            return path
    return None


def link_all(folder: str, home: str) -> list[str]:
    """Link every dotfile into the home, and return what could not be linked, as text."""
    troubles: list[str] = []
    for name in sorted(os.listdir(folder)):
        if name.startswith(".") and name not in _NOT_LINKED:
            _link(os.path.join(folder, name), os.path.join(home, name), troubles)
    return troubles


def _link(source: str, target: str, troubles: list[str]) -> None:
    if os.path.islink(target) and os.readlink(target) == source:
        return
    if os.path.isdir(target) and not os.path.islink(target):
        if not os.path.isdir(source):
            troubles.append(f"{target} is a folder here and a file in the dotfiles: left as it is")
            return
        for name in sorted(os.listdir(source)):  # ~/.config contains other things too
            _link(os.path.join(source, name), os.path.join(target, name), troubles)
        return
    if os.path.lexists(target):
        if os.path.lexists(target + ".bak"):
            troubles.append(f"{target} and {target}.bak are there: left as they are")
            return
        os.rename(target, target + ".bak")
        print(f"kept {target} as {target}.bak")
    os.symlink(source, target)
    print(f"{target} → {source}", flush=True)


def run(spec: dict[str, str]) -> list[str]:
    clone = Clone(spec)
    clone.run()
    home, folder = spec["home"], clone.target
    script = script_of(folder)
    if script is None:
        return [*clone.missing, *clone.notes, *link_all(folder, home)]
    print(f"{RUNNING} {os.path.relpath(script, home)}", flush=True)
    words = [script] if os.access(script, os.X_OK) else ["/bin/sh", script]
    try:
        code = subprocess.run(words, cwd=folder, stdin=subprocess.DEVNULL, check=False).returncode
    except OSError as error:
        raise Failed(Trouble("script", f"{os.path.basename(script)} could not be run: {error.strerror}.")) from error
    if code != 0:
        raise Failed(Trouble("script", f"{os.path.basename(script)} of your dotfiles ended with exit code {code}."))
    return [*clone.missing, *clone.notes]


def main() -> int:
    spec = json.load(sys.stdin)
    clean_up_when_stopped()
    try:
        result: dict[str, object] = {"state": "done", "notes": run(spec), "id": spec["id"]}
    except Failed as error:
        result = {"state": "failed", "kind": error.trouble.kind, "message": error.trouble.message, "id": spec["id"]}
    except OSError as error:
        trouble = explain(str(error), spec["url"], spec["ref"])
        result = {"state": "failed", "kind": trouble.kind, "message": trouble.message, "id": spec["id"]}
        print(error, flush=True)
    return write_result(spec, result)


if __name__ == "__main__":
    sys.exit(main())
