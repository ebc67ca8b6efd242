"""How `workspaced` is started beside an IDE: its files, command line, configuration and address.

The secret of a start is in the environment of the first process only: `workspaced` removes it before anything else runs.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from codehub import workspaced
from codehub.ports.instances import Upstream

SOCKET_NAME = "workspaced.sock"
LAUNCH_NAME = "launch.json"
VARIABLE = "CODEHUB_WORKSPACED"
# Mounted read-only, or read from where CodeHub is installed.
FOLDER = Path(workspaced.__file__).resolve().parent


@dataclass(frozen=True, slots=True)
class Launch:
    """The helper of one start. `listen` is `unix:PATH` or `HOST:PORT`.

    With `pip`, a folder with pip's package or an empty string, the home gets a Python environment and shell startup files.
    """

    home: str
    runtime: str
    listen: str
    secret: str
    hidden_ports: tuple[int, ...] = ()
    pip: str | None = None
    owner: str = ""  # for git's identity, where /etc/gitconfig is the image's
    in_image: bool = False  # the home gets them too, with the image's own Python and pip
    awaits_environment: bool = False
    environment_pipe: str = ""  # where an IDE that its image starts waits for the environment instead
    bridge: tuple[str, int] | None = None  # a Unix socket that forwards to an IDE that listens only on this port
    ide: str | int = ""  # the Unix socket or port on which the IDE will listen. The helper lets it start first

    @property
    def configuration(self) -> dict[str, object]:
        found: dict[str, object] = {
            "home": self.home,
            "runtime": self.runtime,
            "listen": self.listen,
            "secret": self.secret,
            "hidden_ports": list(self.hidden_ports),
            "awaits_environment": self.awaits_environment,
            "environment_pipe": self.environment_pipe,
            "bridge": list(self.bridge or ()),
            "ide": self.ide,
            "in_image": self.in_image,
            "owner": self.owner,
        }
        if self.pip is not None:
            found["pip"] = self.pip
        return found

    @property
    def environment(self) -> dict[str, str]:
        return {VARIABLE: json.dumps(self.configuration)}


def from_file(path: str) -> dict[str, str]:
    """Return the environment for a configuration in a file, which `workspaced` removes after reading it."""
    return {VARIABLE: f"@{path}"}


def words(python: str, folder: str | Path, command: Sequence[str] = ()) -> list[str]:
    """Return the command that starts the helper and then becomes `command`. Without one, only the helper runs."""
    # Isolated and without site-packages, so that nothing that a workspace installs is imported.
    own = [python, "-I", "-S", "-B", f"{folder}/__main__.py"]
    return [*own, "--", *command] if command else own


def hook_words(python: str, folder: str, launch: Launch) -> list[str]:
    """Return the command that starts the helper beside an IDE that runs already."""
    return [*words(python, folder), "--hook", json.dumps(launch.configuration)]


def bearer(secret: str) -> tuple[str, str]:
    return ("Authorization", f"Bearer {secret}")


def by_socket(identity: str, path: str, secret: str, uid: int | None) -> Upstream:
    return Upstream(identity, socket_path=path, secret=bearer(secret), uid=uid)
