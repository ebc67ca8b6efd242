"""Files of one container start on this machine: the directory of its sockets, and its own list of users.

In `SOCKETS_DIR/{workspace}.{token}/`, `run/` is mounted at `/run/codehub` of that container only.
"""

from __future__ import annotations

import json
import os
import re
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from codehub.adapters.docker.images import ImageInfo
from codehub.adapters.filesystem.remove import remove_tree
from codehub.adapters.filesystem.socket_dir import give_socket_dir, prepare_socket_root
from codehub.adapters.workspaced_launch import LAUNCH_NAME, SOCKET_NAME, Launch
from codehub.domain.errors import Invalid
from codehub.workspaced.users import USER, with_user

INSIDE = "/run/codehub"
IDE_SOCKET = "ide.sock"
HOME = "/home/coder"
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}\.[0-9a-f]{16}")


@dataclass(frozen=True, slots=True)
class StartDir:
    """The directory of one start. Its name is a label of the container."""

    root: Path
    name: str

    @property
    def place(self) -> Path:
        if not _NAME.fullmatch(self.name):
            raise Invalid(f"not the directory of a start: {self.name!r}")
        return self.root / self.name

    @property
    def run(self) -> Path:
        return self.place / "run"

    @property
    def ide_socket(self) -> str:
        return str(self.run / IDE_SOCKET)

    @property
    def workspaced_socket(self) -> str:
        return str(self.run / SOCKET_NAME)

    def mounts(self) -> list[dict[str, object]]:
        users = [
            {"Type": "bind", "Source": str(self.place / name), "Target": f"/etc/{name}", "ReadOnly": True}
            for name in ("passwd", "group")
        ]
        return [{"Type": "bind", "Source": str(self.run), "Target": INSIDE}, *users]

    def remove(self) -> None:
        remove_tree(self.place)


@dataclass(frozen=True, slots=True)
class StartDirs:
    root: Path

    def new(self, workspace_id: str) -> StartDir:
        return StartDir(self.root, f"{workspace_id}.{secrets.token_hex(8)}")

    def of(self, workspace_id: str) -> list[StartDir]:
        """Return the existing directories of a workspace, of any start."""
        try:
            names = sorted(os.listdir(self.root))
        except FileNotFoundError:
            return []
        return [
            StartDir(self.root, name)
            for name in names
            if name.startswith(f"{workspace_id}.") and _NAME.fullmatch(name)
        ]

    def make(self, start: StartDir, uid: int | None, image: ImageInfo, launch: Launch) -> None:
        prepare_socket_root(self.root)
        place = start.place
        place.mkdir(mode=0o711)
        place.chmod(0o711)  # regardless of the umask
        ids = os.geteuid() if uid is None else uid
        _write(place / "passwd", with_user(image.passwd, f"{USER}:x:{ids}:{ids}::{HOME}:{image.shell}"), 0o644)
        _write(place / "group", with_user(image.group, f"{USER}:x:{ids}:"), 0o644)
        give_socket_dir(start.run, uid)
        config = start.run / LAUNCH_NAME
        _write(config, json.dumps(launch.configuration), 0o600)
        if uid is not None:
            os.chown(config, uid, -1)


def remove_all(starts: Iterable[StartDir]) -> None:
    for start in starts:
        start.remove()


def _write(path: Path, content: str, mode: int) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
    with open(fd, "w", encoding="utf-8", errors="surrogateescape") as file:
        file.write(content)
        os.fchmod(fd, mode)
