"""What `sari doctor` looks at on the machine: the command, the clients, the registry, ports and limits.

Each check reads and never mends; it says what it found and what to do. The index examines itself (the `doctor` tool).
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from sari import __version__
from sari.install import places
from sari.install.clients import CLIENTS, Client, Scope
from sari.install.errors import InstallError
from sari.protocol.errors import SariError
from sari.registry.model import Registry
from sari.registry.places import find_places
from sari.registry.settings import Settings
from sari.registry.store import Store

_VERSION_S = 20.0
# Below this a middling repository already has folders that nobody watches.
_FEW_WATCHES = 65_536
_FEW_INSTANCES = 128
_MOST_FOLDERS = 500_000
_RAISE = "Raise it: echo fs.inotify.{} | sudo tee -a /etc/sysctl.d/60-sari.conf && sudo sysctl --system"


@dataclass(frozen=True, slots=True)
class Check:
    """One finding. A note is worth knowing and needs nothing done."""

    name: str
    level: Literal["fine", "note", "wrong"]
    detail: str
    mend: str = ""

    def as_dict(self) -> dict[str, object]:
        return {**asdict(self), "ok": self.level != "wrong"}


def machine_checks(environment: Mapping[str, str], project: Path | None) -> list[Check]:
    """Everything but the index; a check that fails itself is a finding, not the end."""
    looks: list[tuple[str, Callable[[], Sequence[Check]]]] = [
        ("command", lambda: [command_check(environment)]),
        ("clients", lambda: client_checks(environment, project)),
        ("registry", lambda: registry_checks(environment)),
        ("ports", lambda: port_checks(environment)),
        ("watch limits", lambda: [watch_check(project)]),
    ]
    found: list[Check] = []
    for name, look in looks:
        try:
            found += look()
        except (SariError, OSError) as error:
            found.append(Check(name, "wrong", str(error)))
    return found


def command_check(environment: Mapping[str, str]) -> Check:
    """Every `sari` on the path: two versions of it are two daemons that replace each other."""
    programs: dict[str, str] = {}
    for folder in environment.get("PATH", os.defpath).split(os.pathsep):
        program = shutil.which("sari", path=folder) if folder else None
        if program is not None and os.path.realpath(program) not in programs:
            programs[os.path.realpath(program)] = program
    versions = {path: _version_of(path) for path in programs.values()}
    shown = ", ".join(f"{path} ({version})" for path, version in versions.items())
    if not versions:
        mend = (
            f"Add the folder of {_own_program()} to PATH; clients are configured by its full path and work without."
        )
        return Check("command", "note", "`sari` is not on the path", mend)
    if len(set(versions.values())) > 1:
        mend = "Remove the ones you do not want, or put the one you want first, then run `sari install` again."
        return Check("command", "wrong", f"several versions are on the path: {shown}", mend)
    return Check("command", "fine", shown)


def _own_program() -> str:
    try:
        return places.program()
    except InstallError:
        return sys.executable


def _version_of(program: str) -> str:
    try:
        done = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=_VERSION_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return "does not start"
    words = done.stdout.split()
    return words[-1] if done.returncode == 0 and words else "does not start"


def client_checks(environment: Mapping[str, str], project: Path | None) -> list[Check]:
    machine = places.machine(environment)
    found: list[Check] = []
    for client in CLIENTS.values():
        for scope in Scope if project is not None else (Scope.USER,):
            path = client.file(scope, machine, project or Path())
            check = _client_check(client, scope, path, environment)
            if check is not None:
                found.append(check)
    return found


def _client_check(client: Client, scope: Scope, path: Path, environment: Mapping[str, str]) -> Check | None:
    name = client.title if scope is Scope.USER else f"{client.title} (this project)"
    again = f"Run `sari install --host {client.name} --scope {scope}`."
    try:
        entry = client.configured(path.read_text("utf-8-sig"))
    except FileNotFoundError:
        entry = None
    except (OSError, UnicodeDecodeError, InstallError) as error:
        mend = "Mend the file (its client cannot read it either), then run `sari install` again."
        return Check(name, "wrong", f"{path} cannot be read: {error}", mend)
    if entry is None:
        return Check(name, "note", "not configured", again) if scope is Scope.USER else None
    wrong = _entry_trouble(entry, environment)
    if wrong is not None:
        return Check(name, "wrong", f"{path}: {wrong}", again)
    if entry.get("disabled") is True or entry.get("enabled") is False:
        return Check(name, "note", f"{path}: sari is switched off there", "Switch it on in the client's settings.")
    return Check(name, "fine", f"{path} starts {entry['command']}")


def _entry_trouble(entry: Mapping[str, object], environment: Mapping[str, str]) -> str | None:
    command, arguments = entry.get("command"), entry.get("args")
    if not isinstance(command, str) or not command:
        return "the entry has no command"
    if not os.path.isabs(command):
        return f"it starts {command!r} by the client's own path, which may be another sari or none"
    if not os.access(command, os.X_OK):
        return f"it starts {command}, which is not there any more"
    words = arguments if isinstance(arguments, list) else []
    if not {"mcp", "proxy"} & {str(word) for word in words}:
        return "its arguments do not name `mcp`"
    version = _version_of(command)
    if version != __version__:
        return f"it starts sari {version}, and this is {__version__}"
    carried = entry.get("env")
    settings = carried if isinstance(carried, dict) else {}
    for variable in places.CARRIED:
        here, there = environment.get(variable, ""), settings.get(variable, "")
        if here != there:
            return (
                f"{variable} is {here or 'not set'} here and {there or 'not set'} for the client, whose environment "
                "hides yours: the two would use different daemons"
            )
    return None


def registry_checks(environment: Mapping[str, str]) -> list[Check]:
    where = find_places(environment)
    folder = Path(where.data_dir)
    if folder.exists() and not os.access(folder, os.W_OK | os.X_OK):
        return [Check("registry", "wrong", f"{folder} cannot be written", f"Make it yours: chown -R $USER {folder}")]
    registry = Store(where).read()
    found = [_registry_check(folder, where.registry_file, registry)]
    live = [entry for entry in registry.daemons.values() if not entry.draining]
    versions = ", ".join(f"{entry.version} (process {entry.pid}, port {entry.port})" for entry in live)
    if len(live) > 1:
        mend = "Run `sari daemon stop`; the next client starts one."
        found.append(Check("daemon", "wrong", f"more than one daemon is running: {versions}", mend))
    elif live and live[0].version != __version__:
        mend = "Run `sari daemon restart`."
        found.append(Check("daemon", "note", f"the daemon's version is {versions}, this is {__version__}", mend))
    else:
        found.append(Check("daemon", "fine", versions or "none is running; the next client starts one"))
    return found


def _registry_check(folder: Path, file: str, registry: Registry) -> Check:
    damaged = sorted(path.name for path in folder.glob(f"{os.path.basename(file)}.damaged-*"))
    said = f"{file}: {len(registry.daemons)} daemons, {len(registry.workspaces)} workspaces"
    if damaged:
        mend = f"It was rebuilt by itself. Delete {folder}/{damaged[-1]} when you have looked at it."
        return Check("registry", "note", f"{said}; it was found damaged before", mend)
    return Check("registry", "fine", said)


def port_checks(environment: Mapping[str, str]) -> list[Check]:
    """A port that somebody else holds costs nothing but its number; say which one is used instead."""
    settings = Settings.from_environ(environment)
    registry = Store(find_places(environment)).read()
    own = {entry.port for entry in registry.daemons.values()}
    own |= {entry.http_port for entry in registry.workspaces.values()}
    found: list[Check] = []
    for name, port in (("SARI_DAEMON_PORT", settings.daemon_port), ("SARI_HTTP_PORT", settings.http_port)):
        if port in own:
            found.append(Check(f"port {port}", "fine", "held by sari's daemon"))
        elif port and _taken(port) and not (registry.daemons and name == "SARI_HTTP_PORT"):
            mend = f"Nothing needs to be done: sari takes another port. To choose one yourself, set {name}."
            found.append(Check(f"port {port}", "note", "taken by another program", mend))
        else:
            found.append(Check(f"port {port}", "fine", "free" if not registry.daemons else "in use by sari or free"))
    return found


def _taken(port: int) -> bool:
    with socket.socket() as probe:
        if os.name == "posix":
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return True
    return False


def watch_check(project: Path | None, limits: Path = Path("/proc/sys/fs/inotify")) -> Check:
    """Linux watches folders one by one, up to a limit that all programs of a user share."""
    try:
        watches = int((limits / "max_user_watches").read_text())
        instances = int((limits / "max_user_instances").read_text())
    except (OSError, ValueError):
        return Check("watch limits", "fine", "this system has no limit of watched folders")
    mend = _RAISE.format("max_user_watches=1048576")
    folders = _count_folders(project, watches) if project is not None else 0
    if folders >= watches:
        return Check("watch limits", "wrong", f"{watches} folders can be watched, and this workspace has more", mend)
    if watches < _FEW_WATCHES:
        return Check("watch limits", "note", f"only {watches} folders can be watched by all programs together", mend)
    if instances < _FEW_INSTANCES:
        more = _RAISE.format("max_user_instances=1024")
        return Check("watch limits", "note", f"only {instances} programs can watch at once", more)
    return Check("watch limits", "fine", f"{watches} folders can be watched")


def _count_folders(root: Path, limit: int) -> int:
    """Folders under `root` but `.git`, as far as the limit: more than that changes nothing."""
    count = 0
    most = min(limit, _MOST_FOLDERS)
    for _, folders, _ in os.walk(root):
        if ".git" in folders:
            folders.remove(".git")
        count += 1
        if count >= most:
            break
    return count
