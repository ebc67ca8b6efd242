"""The locations of instances' records and sockets.

They belong to CodeHub's user and are closed to others. Only a socket's own directory belongs to its workspace.
"""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path

from codehub.adapters.filesystem.remove import remove_tree
from codehub.adapters.filesystem.socket_dir import give_socket_dir, prepare_socket_root
from codehub.adapters.process.records import read_record
from codehub.domain.errors import BackendDown, FenceLost, Invalid

_ID = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}")
_LONGEST_SOCKET = 100  # sun_path holds 108 bytes
_SOCKET_NAME = "ide.sock"
_GONE = ".gone-"
_ISOLATION = ".isolation"  # whether users' workspaces are isolated from each other, as detected by the coordinator


class RunLayout:
    def __init__(self, root: Path) -> None:
        self.root = root

    def prepare(self) -> None:
        self.root.mkdir(mode=0o711, parents=True, exist_ok=True)

    def run_dir(self, workspace_id: str) -> Path:
        if not _ID.fullmatch(workspace_id):
            raise Invalid(f"not a workspace id: {workspace_id!r}")
        return self.root / workspace_id

    def make(self, workspace_id: str) -> Path:
        self.prepare()
        place = self.run_dir(workspace_id)
        # The group is CodeHub's own, so that the API and the proxy can read records and output without being root.
        place.mkdir(mode=0o750, exist_ok=True)
        place.chmod(0o750)
        for left in self.root.glob(f"{_GONE}*"):
            record = read_record(left)
            # The process that took a directory by mistake puts it back (see `remove`), whichever workspace starts here.
            if record is None or left.name == f"{_GONE}{record.identity}":
                remove_tree(left)
        return place

    def record_isolation(self, separates_users: bool) -> None:
        self.prepare()
        staging = self.root / f"{_ISOLATION}.{os.getpid()}"
        staging.write_text("yes\n" if separates_users else "no\n")
        staging.chmod(0o644)
        staging.replace(self.root / _ISOLATION)

    def recorded_isolation(self) -> bool | None:
        try:
            return (self.root / _ISOLATION).read_text() == "yes\n"
        except OSError:
            return None

    def workspaces(self) -> list[str]:
        try:
            return sorted(name for name in os.listdir(self.root) if _ID.fullmatch(name))
        except FileNotFoundError:
            return []
        except OSError as error:
            raise BackendDown(f"the directory of running workspaces cannot be read: {error}") from error

    def make_socket_dir(self, identity: str, uid: int | None) -> Path:
        """Create a directory for one start and its user only, with a path that is short enough for a socket."""
        place = self._socket_dir(identity)
        prepare_socket_root(place.parent)
        remove_tree(place)
        give_socket_dir(place, uid)
        return place

    def socket_root(self) -> Path:
        """Return the directory with the socket directories of all starts."""
        return self._socket_dir("").parent

    def _socket_dir(self, identity: str) -> Path:
        short = hashlib.sha256(identity.encode()).hexdigest()[:16]
        beside = self.root / ".s" / short
        if len(os.fsencode(beside / _SOCKET_NAME)) <= _LONGEST_SOCKET:
            return beside
        of_root = hashlib.sha256(os.fsencode(self.root.absolute())).hexdigest()[:12]
        return Path(f"/tmp/codehub-{of_root}", short)  # noqa: S108 - its owner is checked

    def remove_sockets(self, identity: str) -> None:
        remove_tree(self._socket_dir(identity))

    def remove(self, workspace_id: str, identity: str) -> None:
        """Remove what is left of exactly this start, with one rename that is checked afterwards.

        A process that was frozen since its fence check finds the next start there, and puts it back (INV-11).
        """
        self.remove_sockets(identity)
        place, gone = self.run_dir(workspace_id), self.root / f"{_GONE}{identity}"
        remove_tree(gone)
        try:
            place.rename(gone)
        except FileNotFoundError:
            return
        try:
            record = read_record(gone)
        except BackendDown:
            gone.rename(place)
            raise
        if record is not None and record.identity != identity:
            gone.rename(place)
            raise FenceLost(f"the instance of {workspace_id} is another start than the one that was to be removed")
        remove_tree(gone)
