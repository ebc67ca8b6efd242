"""Runs a command with the variables that `workspaced` receives from CodeHub: the owner's secrets, and the repository's.

Programs that the user installed are on its PATH.

A Pod's IDE is started by its image, not by `workspaced`. Its start script runs `/opt/codehub/bin/with-environment COMMAND`.
Both sides open the same named pipe, whichever comes first: its content is in memory only, and the first reader gets it.

Imports little: every start waits for it.
"""

from __future__ import annotations

import os
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    import re
    from collections.abc import Mapping

VARIABLE = "CODEHUB_ENVIRONMENT_PIPE"  # set if the owner has secrets
# If CodeHub does not send the secrets, the IDE starts without them.
_TIMEOUT_S = 20.0
_VARIABLE = r"\$\{containerEnv:([A-Za-z_][A-Za-z0-9_]*)(?::([^}$]*))?\}"
# As CodeHub's `domain/environment_names.py` has them.
_OWN = frozenset({"HOME", "USER", "LOGNAME", "SHELL", "PWD", "SSH_AUTH_SOCK"})
_OWN_BEGINNINGS = ("CODEHUB_", "GIT_CONFIG_")
_NOT_FOR_THE_IDE = frozenset({"NODE_OPTIONS", "LD_PRELOAD", "PYTHONHOME"})
_MOST_BYTES = 128 << 10
_CAPACITY = 1 << 20  # more than all secrets, so that writing never waits for a reader


def open_pipe(path: str) -> int:
    """Open the pipe for reading and writing, so that what was written stays until it is read."""
    import contextlib
    import fcntl

    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        os.mkfifo(path, 0o600)
    fd = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    with contextlib.suppress(OSError, AttributeError):
        fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, _CAPACITY)
    return fd


def awaited_environment(fd: int) -> dict[str, str]:
    """Read one line of JSON from the helper, which gets it from CodeHub. Closes the descriptor."""
    import json
    import select

    line = b""
    give_up = time.monotonic() + _TIMEOUT_S
    while not line.endswith(b"\n"):
        ready, _, _ = select.select([fd], [], [], max(0.0, give_up - time.monotonic()))
        data = os.read(fd, 65536) if ready else b""
        if not data:
            print(
                "workspaced: the secrets of this workspace's owner were not received; starting without them",
                file=sys.stderr,
            )
            break
        line += data
    os.close(fd)
    found = json.loads(line) if line.endswith(b"\n") else {}
    return {str(name): str(value) for name, value in found.items()}


def saved_environment(home: str) -> dict[str, str]:
    """Return the variables of the repository's devcontainer.json, which its setup has saved."""
    path = os.path.join(home, ".local", "state", "codehub", "setup", "environment.json")
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
        import json

        found = json.loads(text)
    except (OSError, ValueError):
        return {}
    return {str(name): str(value) for name, value in found.items()} if isinstance(found, dict) else {}


def expand(text: str, env: Mapping[str, str]) -> str:
    """Expand `${containerEnv:NAME}` and `${containerEnv:NAME:DEFAULT}`, up to a size that programs can be started with."""
    import re

    room = _MOST_BYTES

    def value_of(found: re.Match[str]) -> str:
        nonlocal room
        value = env.get(found[1]) or found[2] or ""
        room -= len(value)
        return value if room >= 0 else ""

    return re.sub(_VARIABLE, value_of, text)


def repository_variables(wanted: Mapping[str, str], own: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of devcontainer.json to set. `own` is the environment without them.

    CodeHub checks them; but they are saved in the home, where users and older versions write too. Nothing in them may keep
    programs from starting: the user could not fix it any more.
    """
    found: dict[str, str] = {}
    room = _MOST_BYTES
    for name, text in wanted.items():
        value = expand(text, {**own, **found})
        taken = name in _OWN or name.startswith(_OWN_BEGINNINGS)
        if name == "PATH":
            taken = own.get("PATH", os.defpath) not in value
        if name and "=" not in name and "\0" not in name + value and not taken:
            found[name] = value
            room -= len(os.fsencode(name + value))
        if room < 0:
            return {}
    return found


def ide_variables(wanted: Mapping[str, str], own: Mapping[str, str]) -> dict[str, str]:
    """Return those that the IDE gets: without the ones that could keep it from starting."""
    found = repository_variables(wanted, own)
    return {name: value for name, value in found.items() if name not in _NOT_FOR_THE_IDE}


def found_program(name: str) -> str:
    """Return where `exec` finds a program, or its name. (`shutil.which` takes longer to import than to run.)"""
    paths = [os.path.join(folder, name) for folder in os.get_exec_path()] if "/" not in name else []
    return next((path for path in paths if os.access(path, os.X_OK) and os.path.isfile(path)), name)


def extend_path(home: str) -> None:
    """Programs of the user come first, as in a process workspace; those that CodeHub adds to the image come last."""
    path, added = os.environ.get("PATH") or os.defpath, os.environ.get("CODEHUB_PROGRAMS")
    own = [f"{home}/.local/bin", f"{home}/.venv/bin"]
    os.environ["PATH"] = ":".join([*own, path, *([added] if added else [])])


def main(command: list[str]) -> None:
    if not command:
        sys.exit("usage: with-environment COMMAND [ARGUMENT …]")
    command = [found_program(command[0]), *command[1:]]  # never a program that a user installed
    home = os.environ.get("HOME", "/")
    extend_path(home)
    pipe = os.environ.pop(VARIABLE, "")
    os.environ.update(ide_variables(saved_environment(home), os.environ))
    if pipe:
        os.environ.update(awaited_environment(open_pipe(pipe)))
    try:
        os.execvp(command[0], command)  # noqa: S606
    except OSError as error:
        sys.exit(f"{command[0]}: {error.strerror}")


if __name__ == "__main__":
    main(sys.argv[1:])
