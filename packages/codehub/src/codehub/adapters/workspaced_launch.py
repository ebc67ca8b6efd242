"""How `workspaced` is started beside an IDE: its files, its command line, its configuration and where it is reached.

The secret of a start is in the environment of the first process alone: `workspaced` takes it out before anything else runs.
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
# The folder that is mounted read-only, or read from where CodeHub is installed.
FOLDER = Path(workspaced.__file__).resolve().parent


@dataclass(frozen=True, slots=True)
class Launch:
    """One start's helper. `listen` is `unix:PATH` or `HOST:PORT`.

    With `pip`, a folder with pip's package or an empty string, the home gets a Python environment and a shell's files.
    """

    home: str
    runtime: str
    listen: str
    secret: str
    hidden_ports: tuple[int, ...] = ()
    pip: str | None = None
    awaits_environment: bool = False
    bridge: tuple[str, int] | None = None  # a Unix socket that leads to an IDE that only listens on this port

    @property
    def configuration(self) -> dict[str, object]:
        found: dict[str, object] = {
            "home": self.home,
            "runtime": self.runtime,
            "listen": self.listen,
            "secret": self.secret,
            "hidden_ports": list(self.hidden_ports),
            "awaits_environment": self.awaits_environment,
            "bridge": list(self.bridge or ()),
        }
        if self.pip is not None:
            found["pip"] = self.pip
        return found

    @property
    def environment(self) -> dict[str, str]:
        return {VARIABLE: json.dumps(self.configuration)}


def from_file(path: str) -> dict[str, str]:
    """The environment where the configuration is in a file, which `workspaced` removes once it has read it."""
    return {VARIABLE: f"@{path}"}


def words(python: str, folder: str | Path, command: Sequence[str] = ()) -> list[str]:
    """The command that starts the helper and then becomes `command`; without one it is the helper alone."""
    # Isolated and without site-packages: nothing that a workspace installs is imported.
    own = [python, "-I", "-S", "-B", f"{folder}/__main__.py"]
    return [*own, "--", *command] if command else own


def bearer(secret: str) -> tuple[str, str]:
    return ("Authorization", f"Bearer {secret}")


def by_socket(identity: str, path: str, secret: str, uid: int | None) -> Upstream:
    return Upstream(identity, socket_path=path, secret=bearer(secret), uid=uid)
