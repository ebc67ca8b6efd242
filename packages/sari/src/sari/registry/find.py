"""Finds a daemon that can serve us, and starts one if there is none. The shim and the command line use the same rules.

Only a newer version replaces an older one. Until then a live older daemon serves us. A newer daemon serves us if it
speaks our protocol.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import time
from dataclasses import dataclass, replace

from sari.protocol.errors import SariError
from sari.protocol.versions import WIRE_PROTOCOL, is_older, version_key
from sari.registry import dial
from sari.registry.layout import Layout, make_private_directory
from sari.registry.locks import FileLock
from sari.registry.model import DaemonEntry, Registry
from sari.registry.processes import is_stopped
from sari.registry.settings import Settings
from sari.registry.start import StartFailed, StartPlan, start_daemon
from sari.registry.store import Store, read_token

# A version that could not start is not retried at every connection.
FAILED_START_PAUSE_S = 60.0
# The holder of the start lock finishes within the start timeout. If it holds the lock for this much longer, its process
# is suspended.
_LOCK_GRACE_S = 5.0


class NeedsUpgrade(SariError):
    """Raised when the running daemon is newer and no longer speaks our protocol."""


@dataclass(frozen=True, slots=True)
class Found:
    """A connected, authenticated daemon. `older` if our version should replace it."""

    sock: socket.socket
    entry: DaemonEntry
    older: bool = False


@dataclass(frozen=True, slots=True)
class Finder:
    """Finds daemons for one version of sari and one layout."""

    layout: Layout
    settings: Settings
    version: str
    explicit_daemon_port: int | None = None
    explicit_http_port: int | None = None

    def find(self, root: str | None = None) -> Found | None:
        """Return the best daemon that can serve us, or None. Starts nothing."""
        older: Found | None = None
        for entry in self._candidates(root):
            found = self._try(entry, dial.IDENTIFY_TIMEOUT_S)
            if found is None:
                continue
            if not found.older:
                _close(older)
                return found
            if older is None:
                older = found
            else:
                _close(found)
        return older or self._at_default_port()

    def find_or_start(self, root: str | None = None) -> Found:
        """Return a daemon that can serve us, started if there is none. An older one is returned unchanged: see
        `upgrade`.
        """
        found = self.find(root)
        if found is not None:
            return found
        make_private_directory(self.layout.data_dir)
        with FileLock(self.layout.start_lock) as lock:
            lock.acquire(self.settings.start_timeout_s + _LOCK_GRACE_S)
            found = self.find(root)
            if found is None:
                found = self._reach(self._start(lock))
            return found

    def upgrade(self) -> DaemonEntry | None:
        """Replace an older daemon with our version. Returns None if another process did, or if our version failed to
        start recently.
        """
        if self._failed_lately():
            return None
        with FileLock(self.layout.start_lock) as lock:
            lock.acquire(self.settings.start_timeout_s + _LOCK_GRACE_S)
            if self._failed_lately():
                return None
            found = self.find(None)
            if found is None or not found.older:
                _close(found)
                return None
            _close(found)
            try:
                return self._start(lock)
            except StartFailed:
                self._note_failure()
                raise

    def restart(self) -> DaemonEntry:
        """Replace the running daemons, whatever their version."""
        with FileLock(self.layout.start_lock) as lock:
            lock.acquire(self.settings.start_timeout_s + _LOCK_GRACE_S)
            return self._start(lock)

    def _start(self, lock: FileLock) -> DaemonEntry:
        # Every live daemon that we do not use is too old or does not answer. The new daemon takes over from all of
        # them.
        living = Store(self.layout).read().daemons.values()
        replaces = tuple(entry.boot_id for entry in living if not entry.draining and entry.token)
        plan = StartPlan(
            self.settings.daemon_port if self.explicit_daemon_port is None else self.explicit_daemon_port,
            self.settings.http_port if self.explicit_http_port is None else self.explicit_http_port,
            self.explicit_daemon_port is not None,
            self.explicit_http_port is not None,
            replaces,
        )
        return start_daemon(self.layout, plan, self.settings.start_timeout_s, lock)

    def _reach(self, entry: DaemonEntry) -> Found:
        found = self._try(entry, dial.IDENTIFY_TIMEOUT_S)
        if found is None:
            raise StartFailed(
                f"the daemon started on port {entry.port} but does not answer; see {self.layout.log_dir}"
            )
        return found

    def _candidates(self, root: str | None) -> list[DaemonEntry]:
        registry: Registry = Store(self.layout).read()
        mapped = registry.workspaces.get(root) if root else None
        best_first = sorted(
            (entry for entry in registry.daemons.values() if not entry.draining),
            key=lambda entry: (
                mapped is not None and entry.boot_id == mapped.boot_id,
                version_key(entry.version),
                entry.start_ts,
            ),
            reverse=True,
        )
        return [entry for entry in best_first if not is_stopped(entry.pid)]

    def _at_default_port(self) -> Found | None:
        port = self.settings.daemon_port
        token = read_token(self.layout)
        if not token or not port or not dial.is_ours(port):
            return None
        return self._try(DaemonEntry("", "127.0.0.1", port, 0, "dev", token=token), dial.STRANGER_TIMEOUT_S)

    def _try(self, entry: DaemonEntry, timeout_s: float) -> Found | None:
        try:
            sock = dial.connect(entry.host, entry.port)
        except OSError:
            return None
        kept = False
        try:
            identity = dial.identify(sock, entry.token, timeout_s)
            # A peer with our token is ours, even if a successor answers on the port of the daemon that we dialled.
            if identity.draining:
                return None
            older = is_older(identity.version, self.version)
            if WIRE_PROTOCOL not in identity.protocols:
                if older:
                    return None
                raise NeedsUpgrade(
                    f"the running sari daemon (version {identity.version}) no longer speaks the protocol of this one "
                    f"({self.version}): upgrade with `sari upgrade`, and restart the client"
                )
            kept = True
            return Found(sock, replace(entry, boot_id=identity.boot_id, pid=identity.pid), older)
        except (OSError, dial.Answered):
            return None
        finally:
            if not kept:
                sock.close()

    def _failed_lately(self) -> bool:
        try:
            with open(self.layout.failed_start_file, encoding="utf-8") as file:
                content = json.load(file)
            return bool(content["version"] == self.version and time.time() < content["ts"] + FAILED_START_PAUSE_S)
        except (OSError, ValueError, KeyError, TypeError):
            return False

    def _note_failure(self) -> None:
        with contextlib.suppress(OSError):
            descriptor = os.open(self.layout.failed_start_file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with open(descriptor, "w", encoding="utf-8") as file:
                json.dump({"version": self.version, "ts": time.time()}, file)


def _close(found: Found | None) -> None:
    if found is not None:
        found.sock.close()
