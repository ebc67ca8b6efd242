"""Checks of the daemon's environment: the registry, the locks, the ports, the versions.

A check is a function from `Layout` to findings; `CHECKS` lists them. A check changes nothing and never raises: a read
error is a finding.
"""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Callable

from sari import __version__
from sari.diagnostics.finding import Finding
from sari.protocol.errors import SariError
from sari.protocol.versions import is_older
from sari.registry import dial
from sari.registry.layout import Layout
from sari.registry.locks import FileLock, is_locked
from sari.registry.model import Damaged, parse
from sari.registry.processes import is_stopped
from sari.registry.settings import Settings
from sari.registry.store import Store

Check = Callable[[Layout], list[Finding]]


def check_registry(layout: Layout) -> list[Finding]:
    """Check that the registry is readable, intact, private to its owner, and on a disk with free space."""
    path = layout.registry_file
    try:
        with open(path, encoding="utf-8") as file:
            parse(file.read())
    except FileNotFoundError:
        return [Finding("ok", f"no registry yet at {path}; the first client makes it")]
    except (Damaged, UnicodeDecodeError, IsADirectoryError) as error:
        return [
            Finding(
                "error", f"the registry {path} is damaged ({error})", "no action needed: the next client rebuilds it"
            )
        ]
    except OSError as error:
        return [
            Finding("error", f"the registry {path} cannot be read ({error.strerror})", "make it readable for you")
        ]
    findings = [Finding("ok", f"the registry {path} is intact")]
    if os.name == "posix" and stat.S_IMODE(os.stat(path).st_mode) & 0o077:
        findings.append(Finding("warning", f"{path} is open to other users", f"chmod 600 {path}"))
    if not os.access(layout.data_dir, os.W_OK):
        findings.append(Finding("error", f"{layout.data_dir} is not writable", "make it writable for you"))
    elif os.name == "posix":
        disk = os.statvfs(layout.data_dir)
        if disk.f_bavail * disk.f_frsize < 10 * 1024 * 1024:
            findings.append(Finding("error", f"the disk under {layout.data_dir} is full", "free some space"))
    return findings


def check_locks(layout: Layout) -> list[Finding]:
    """Check that no process holds the registry lock or the start lock for long, and that dead daemons left no locks."""
    findings = []
    for path, what in ((layout.registry_lock, "the registry"), (layout.start_lock, "starting a daemon")):
        if not is_locked(path):
            continue
        holder = FileLock(path).holder()
        if holder is not None and is_stopped(holder):
            findings.append(
                Finding(
                    "error", f"the lock for {what} is held by process {holder}, which is stopped", f"kill -9 {holder}"
                )
            )
        else:
            findings.append(Finding("warning", f"the lock for {what} is held by process {holder}", "wait a moment"))
    try:
        dead = [name for name in os.listdir(layout.lock_dir) if not is_locked(os.path.join(layout.lock_dir, name))]
    except OSError:
        dead = []
    if dead:
        findings.append(Finding("ok", f"{len(dead)} locks of dead daemons, removed when the next daemon starts"))
    return findings or [Finding("ok", "no lock is held")]


def check_daemons(layout: Layout) -> list[Finding]:
    """Check that every daemon in the registry answers, one serves, and none is older than this program."""
    try:
        daemons = list(Store(layout).read().daemons.values())
    except SariError as error:
        return [Finding("error", str(error))]
    findings = [
        Finding("ok", f"a sari from before version 3 runs too (pid {entry.pid}); it serves its own clients")
        for entry in daemons
        if not entry.token
    ]
    daemons = [entry for entry in daemons if entry.token]
    for entry in daemons:
        name = f"the daemon {entry.version} (pid {entry.pid}, port {entry.port})"
        if is_stopped(entry.pid):
            findings.append(Finding("error", f"{name} is stopped", f"kill -CONT {entry.pid}, or kill -9 {entry.pid}"))
            continue
        try:
            with dial.connect(entry.host, entry.port) as sock:
                dial.identify(sock, entry.token, dial.CONNECT_TIMEOUT_S)
        except (OSError, dial.Answered) as error:
            findings.append(Finding("error", f"{name} does not answer: {error}", "sari daemon restart"))
            continue
        if is_older(entry.version, __version__) and not entry.draining:
            findings.append(
                Finding("warning", f"{name} is older than this sari ({__version__})", "sari daemon start")
            )
        else:
            findings.append(Finding("ok", f"{name} answers" + (" and is being replaced" if entry.draining else "")))
    serving = [entry for entry in daemons if not entry.draining]
    if len(serving) > 1:
        findings.append(Finding("warning", f"{len(serving)} daemons serve", "wait a few seconds: one of them exits"))
    return findings or [Finding("ok", "no daemon runs; the next client's call starts one")]


def check_ports(layout: Layout) -> list[Finding]:
    """Check that the default ports are free or used by sari. Otherwise report which port is used instead."""
    try:
        settings = Settings.from_environ(os.environ)
        registry = Store(layout).read()
    except SariError as error:
        return [Finding("error", str(error))]
    ours = {entry.port for entry in registry.daemons.values() if entry.token}
    pages = {entry.http_port for entry in registry.workspaces.values() if entry.http_port}
    # A daemon registers its HTTP port when it opens its first workspace.
    unknown = bool(ours and not pages)
    findings = []
    for name, port, own in (
        ("SARI_DAEMON_PORT", settings.daemon_port, ours),
        ("SARI_HTTP_PORT", settings.http_port, pages),
    ):
        if port == 0 or port in own or not _is_taken(port) or (own is pages and unknown):
            continue
        who = "a sari from before version 3" if dial.is_predecessor("127.0.0.1", port) else "another program"
        used = f"; {', '.join(map(str, sorted(own)))} is used" if own else ""
        findings.append(
            Finding(
                "warning", f"port {port} ({name}) is held by {who}{used}", "no action needed: sari uses another port"
            )
        )
    return findings or [Finding("ok", "the ports are free or used by sari")]


def _is_taken(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(dial.STRANGER_TIMEOUT_S)
        return probe.connect_ex(("127.0.0.1", port)) == 0


CHECKS: list[Check] = [check_registry, check_locks, check_daemons, check_ports]
