"""The registry file on disk: read by anyone at any time, written whole, under its lock.

Reading needs no lock, since the file is replaced by renaming. Dead daemons are left out on reading, and gone from the
file with the next write. Nothing here waits for long: a lock held by a stopped process is an error that names it.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable

from sari.protocol.errors import SariError
from sari.registry.layout import Layout, make_private_directory
from sari.registry.locks import FileLock, is_locked
from sari.registry.model import DaemonEntry, Damaged, Registry, dump, parse, parse_daemon
from sari.registry.processes import is_same_process

# A write takes milliseconds; whoever holds the lock for longer than this is stopped or on a dead file system.
LOCK_WAIT_S = 10.0
_KEPT_DAMAGED = 3


class Store:
    """One registry file."""

    def __init__(self, layout: Layout, lock_wait_s: float = LOCK_WAIT_S) -> None:
        self.layout = layout
        self._lock_wait_s = lock_wait_s

    def read(self) -> Registry:
        """What the file says of daemons that live. Raises `SariError` when it cannot be read at all."""
        try:
            return self._living(self._load())
        except Damaged:
            # Only who holds the lock may set it aside, and only if it is still damaged then.
            return self.update(lambda registry: registry)

    def update(self, change: Callable[[Registry], Registry]) -> Registry:
        """Change the file under its lock, and return what it says now."""
        make_private_directory(self.layout.data_dir)
        with FileLock(self.layout.registry_lock) as lock:
            lock.acquire(self._lock_wait_s)
            try:
                before = self._load()
            except Damaged:
                self._set_aside()
                before = self._from_locks()
            registry = change(self._living(before))
            if registry != before or not os.path.exists(self.layout.registry_file):
                self._write(dump(registry))
            return registry

    def is_alive(self, entry: DaemonEntry) -> bool:
        """Whether this daemon lives: by the lock it holds, else (an older one has none) by its process."""
        held = is_locked(self.layout.life_lock(entry.boot_id))
        if held is not None:
            return held
        return is_same_process(entry.pid, entry.process_mark, entry.start_ts)

    def _living(self, registry: Registry) -> Registry:
        dead = {key for key, entry in registry.daemons.items() if not self.is_alive(entry)}
        dead |= {entry.boot_id for entry in registry.workspaces.values()} - registry.daemons.keys()
        return registry.without_daemons(dead) if dead else registry

    def _load(self) -> Registry:
        try:
            with open(self.layout.registry_file, "rb") as file:
                content = file.read()
                self._restrict_mode(file.fileno())
        except FileNotFoundError:
            return self._from_locks()
        except IsADirectoryError as error:
            raise Damaged("it is a directory") from error
        except OSError as error:
            raise SariError(
                f"cannot read the registry {self.layout.registry_file} ({error.strerror}): "
                "make it readable, or set SARI_REGISTRY_FILE to another file"
            ) from error
        try:
            return parse(content.decode())
        except UnicodeDecodeError as error:
            raise Damaged("not UTF-8") from error

    def _from_locks(self) -> Registry:
        """The registry rebuilt from the truth: every daemon writes its entry into the lifetime lock it holds."""
        registry = Registry()
        try:
            names = os.listdir(self.layout.lock_dir)
        except OSError:
            return registry
        for name in names:
            boot_id, dot, kind = name.rpartition(".")
            if dot and kind == "lock" and (entry := self._entry_in_lock(boot_id)) is not None:
                registry = registry.with_daemon(entry)
        return registry

    def _entry_in_lock(self, boot_id: str) -> DaemonEntry | None:
        path = self.layout.life_lock(boot_id)
        if not is_locked(path):
            return None
        try:
            with open(path, encoding="utf-8") as file:
                return parse_daemon(boot_id, json.load(file))
        except (OSError, ValueError):
            return None

    def _restrict_mode(self, descriptor: int) -> None:
        # It holds the access token; a file from an older version may be open to all.
        if os.name == "posix" and os.fstat(descriptor).st_mode & 0o077:
            with contextlib.suppress(OSError):
                os.fchmod(descriptor, 0o600)

    def _write(self, text: str) -> None:
        temporary = f"{self.layout.registry_file}.{os.getpid()}.tmp"
        try:
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            try:
                with open(descriptor, "wb") as file:
                    file.write(text.encode())
                    file.flush()
                    os.fsync(file.fileno())
                os.replace(temporary, self.layout.registry_file)
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(temporary)
                raise
        except OSError as error:
            raise SariError(
                f"cannot write the registry {self.layout.registry_file} ({error.strerror}): free some space or make "
                "the directory writable, or set SARI_REGISTRY_FILE to a file elsewhere"
            ) from error

    def _set_aside(self) -> None:
        stem = os.path.basename(self.layout.registry_file) + ".damaged-"
        with contextlib.suppress(OSError):
            os.replace(self.layout.registry_file, os.path.join(self.layout.data_dir, f"{stem}{time.time_ns()}"))
            kept = sorted(name for name in os.listdir(self.layout.data_dir) if name.startswith(stem))
            for name in kept[:-_KEPT_DAMAGED]:
                os.unlink(os.path.join(self.layout.data_dir, name))


def access_token(layout: Layout) -> str:
    """The token all of this user's daemons ask for; made once. Daemons write it into their registry entry too."""
    import secrets

    make_private_directory(layout.data_dir)
    try:
        if not read_token(layout):
            # Daemons start one at a time (the start lock), so nobody else makes one meanwhile.
            fresh = f"{layout.token_file}.{os.getpid()}.tmp"
            with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="ascii") as file:
                file.write(secrets.token_urlsafe(32))
            os.replace(fresh, layout.token_file)
    except OSError as error:
        raise SariError(
            f"cannot write the access token {layout.token_file} ({error.strerror}): free some space or make the "
            "directory writable, or set SARI_REGISTRY_FILE to a file elsewhere"
        ) from error
    return read_token(layout)


def read_token(layout: Layout) -> str:
    """The token, or nothing when there was never a daemon here."""
    try:
        with open(layout.token_file, encoding="ascii") as file:
            return file.read().strip()
    except (OSError, UnicodeDecodeError):
        return ""
