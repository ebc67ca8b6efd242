"""Prepares a home: shell startup files and a Python environment. Runs as the workspace's user.

Creates only what is missing and changes nothing that the user wrote. Idempotent; safe to kill at any point. In a container
the environment is based on the image's Python and has its pip; an image without Python has no environment.

The IDE waits for the shell startup files, so little is imported for them. The environment takes longer than the start of a
small IDE. It is created beside the IDE, before the helper answers.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable

ENVIRONMENT = ".venv"
_SKELETON = "/etc/skel"
_BASHRC = """# Read by interactive shells.
[ -z "$PS1" ] && return
PS1='\\w\\$ '
alias ll='ls -l'
"""
_PROFILE = """# Read by login shells.
if [ -n "$BASH_VERSION" ] && [ -f "$HOME/.bashrc" ]; then
    . "$HOME/.bashrc"
fi
"""
_SHELL_FILES = ((".bashrc", _BASHRC), (".profile", _PROFILE))
# /etc/profile of an image sets PATH again in a login shell.
_IMAGE_PROFILE = """
# Programs that pip and npm installed, and those that CodeHub adds to the image.
PATH="$HOME/.local/bin:$HOME/.venv/bin:$PATH${CODEHUB_PROGRAMS:+:$CODEHUB_PROGRAMS}"
"""
_LONGEST_S = 60
_WITHOUT_PIP = 3
# One process, because the helper waits for it.
_MAKE_IN_IMAGE = f"""import importlib.util, sys, venv
venv.EnvBuilder(system_site_packages=True, symlinks=True).create(sys.argv[1])
sys.exit(0 if importlib.util.find_spec("pip") else {_WITHOUT_PIP})
"""
_PARTS = {"bin", "include", "lib", "lib64", "pyvenv.cfg", ".gitignore"}
_OUR_PATH = "codehub-pip.pth"
_PIP = """#!/bin/sh
exec "$(dirname "$0")/python" -m pip "$@"
"""


def set_up_shells(home: str, *, in_image: bool = False) -> None:
    _attempt(lambda: _write_shell_files(home, _IMAGE_PROFILE if in_image else ""))


def set_up_environment(home: str, pip: str | None) -> None:
    """Create the environment. `pip` is a folder with pip's package, or empty; None for the home of a container."""
    _attempt(lambda: _offer_environment_of_image(home) if pip is None else _offer_environment(home, pip))


def _attempt(work: Callable[[], None]) -> None:
    before = os.umask(0o022)
    try:
        work()
    except Exception as error:  # noqa: BLE001 - a full disk or a strange home must not prevent the IDE from starting
        print(f"the home could not be set up completely: {error!r}", file=sys.stderr)
    finally:
        os.umask(before)


def _offer_environment(home: str, pip: str) -> None:
    place = os.path.join(home, ENVIRONMENT)
    if _is_missing(place):
        _make_environment(place, pip)
    elif _is_ours(place):
        _offer_pip(place, pip)


def _offer_environment_of_image(home: str) -> None:
    """The image's programs are those on PATH, except the user's own."""
    import shutil
    import subprocess

    place = os.path.join(home, ENVIRONMENT)
    folders = [folder for folder in os.get_exec_path() if not folder.startswith(f"{home}/")]
    python = shutil.which("python3", path=":".join(folders))
    if python is None or not _is_missing(place):
        return
    _remove_dead_links(place)
    words = [python, "-I", "-c", _MAKE_IN_IMAGE, place]
    code = subprocess.run(words, stdin=subprocess.DEVNULL, check=False, timeout=_LONGEST_S).returncode
    if code not in (0, _WITHOUT_PIP):
        raise OSError(f"{python} could not create {place}: exit code {code}")
    if code == 0:
        _write_pip(place)


def _write_shell_files(home: str, end_of_profile: str) -> None:
    os.makedirs(os.path.join(home, ".local", "bin"), mode=0o755, exist_ok=True)
    for name, otherwise in _SHELL_FILES:
        path = os.path.join(home, name)
        if os.path.lexists(path):
            continue
        given = os.path.join(_SKELETON, name)
        if os.path.isfile(given):
            with open(given, encoding="utf-8", errors="surrogateescape") as file:
                otherwise = file.read()
        _write(path, otherwise + (end_of_profile if name == ".profile" else ""), 0o644)


def _is_missing(place: str) -> bool:
    """Return whether the environment is absent, incomplete, or based on an interpreter that is gone."""
    if os.path.exists(os.path.join(place, "bin", "python")) or (os.path.lexists(place) and not os.path.isdir(place)):
        return False
    return not os.path.isdir(place) or set(os.listdir(place)) <= _PARTS


def _remove_dead_links(place: str) -> None:
    """Remove links to an interpreter that is gone. The packages of an older Python stay where they are."""
    import glob

    for path in glob.glob(f"{glob.escape(place)}/bin/python*"):
        if os.path.islink(path):
            os.unlink(path)


def _is_ours(place: str) -> bool:
    import glob

    return any(
        os.path.exists(os.path.join(folder, _OUR_PATH))
        for folder in glob.glob(f"{glob.escape(place)}/lib/python*/site-packages")
    )


def _make_environment(place: str, pip: str) -> None:
    """Create the environment with the system's packages visible: only then does `pip install --user` work in it too."""
    import venv

    # First, because it also marks the environment as ours.
    os.makedirs(_packages(place), mode=0o755, exist_ok=True)
    _write(os.path.join(_packages(place), _OUR_PATH), f"{pip}\n", 0o644)
    _remove_dead_links(place)
    venv.EnvBuilder(system_site_packages=True, symlinks=True, with_pip=False).create(place)
    _offer_pip(place, pip)


def _offer_pip(place: str, pip: str) -> None:
    """Add pip by reference, so that it stays outside the home. A pip that the user installs takes precedence."""
    if not pip:
        return
    os.makedirs(_packages(place), mode=0o755, exist_ok=True)
    _write(os.path.join(_packages(place), _OUR_PATH), f"{pip}\n", 0o644)
    _write_pip(place)


def _write_pip(place: str) -> None:
    for name in ("pip", "pip3"):
        path = os.path.join(place, "bin", name)
        if not os.path.lexists(path):
            _write(path, _PIP, 0o755)


def _packages(place: str) -> str:
    return os.path.join(place, "lib", f"python{sys.version_info[0]}.{sys.version_info[1]}", "site-packages")


def _write(path: str, content: str, mode: int) -> None:
    with open(path + ".codehub-new", "w", encoding="utf-8", errors="surrogateescape") as file:
        file.write(content)
    os.chmod(path + ".codehub-new", mode)
    os.replace(path + ".codehub-new", path)
