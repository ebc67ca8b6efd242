"""The registry file on disk. Any process can read it at any time; writes replace it completely, under its lock.

Reading needs no lock, because the file is replaced by renaming. Dead daemons are ignored when reading and removed with
the next write. Nothing here waits for long: a lock held by a stopped process raises an error that names it.
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

# A write takes milliseconds. A process that holds the lock for longer is suspended or on a dead file system.
LOCK_WAIT_S = 10.0
_KEPT_DAMAGED = 3


class Store:
    """One registry file."""

    def __init__(self, layout: Layout, lock_wait_s: float = LOCK_WAIT_S) -> None:
        self.layout = layout
        self._lock_wait_s = lock_wait_s

    def read(self) -> Registry:
        """Return the file's entries for live daemons. Raises `SariError` if the file cannot be read."""
        try:
            return self._living(self._load())
        except Damaged:
            # Only the lock's holder may set the file aside, and only if it is still damaged then.
            return self.update(lambda registry: registry)

    def update(self, change: Callable[[Registry], Registry]) -> Registry:
        """Change the file under its lock, and return the new contents."""
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
        """Whether this daemon is alive: by its lock, or by its process for an older daemon without one."""
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
        """Rebuild the registry from the lifetime locks, into which every daemon writes its entry."""
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
        # The file contains the access token, and a file from an older version may be readable by all.
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
    """Return the token of this user's daemons, created once. Daemons also write it into their registry entry."""
    import secrets

    make_private_directory(layout.data_dir)
    try:
        if not read_token(layout):
            # Daemons start one at a time (the start lock), so no other process creates a token now.
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
    """Return the token, or an empty string if no daemon ever ran here."""
    try:
        with open(layout.token_file, encoding="ascii") as file:
            return file.read().strip()
    except (OSError, UnicodeDecodeError):
        return ""
