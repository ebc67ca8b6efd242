"""Checks of the installation: the command on PATH, the clients' configuration files, the system's limits.

The checks of the daemon's environment are in `daemon_checks`; the `doctor` tool checks the index. Changes nothing.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from sari import __version__
from sari.diagnostics.finding import Finding
from sari.diagnostics.gemini_trust import trust_findings
from sari.install import environment as installed
from sari.install.clients import CLIENTS, Client, Scope
from sari.install.errors import InstallError, Refused
from sari.install.files import find
from sari.protocol.errors import SariError
from sari.registry.layout import find_layout
from sari.registry.programs import search_path

_VERSION_S = 60.0
# Below this limit, even a medium-sized repository has folders without a watch.
_FEW_WATCHES = 65_536
_FEW_INSTANCES = 128
_MOST_FOLDERS = 500_000
_RAISE = "raise it: echo fs.inotify.{} | sudo tee -a /etc/sysctl.d/60-sari.conf && sudo sysctl --system"


def machine_findings(environment: Mapping[str, str], project: Path | None) -> list[Finding]:
    """Run every check of the installation. A check that fails becomes a finding."""
    checks: list[Callable[[], Sequence[Finding]]] = [
        lambda: [command_finding(environment, project)],
        lambda: client_findings(environment, project),
        lambda: trust_findings(installed.machine(environment), project),
        lambda: damaged_findings(environment),
        lambda: [watch_finding(project)],
    ]
    found: list[Finding] = []
    for check in checks:
        try:
            found += check()
        except (SariError, OSError) as error:
            found.append(Finding("error", str(error)))
    return found


def command_finding(environment: Mapping[str, str], project: Path | None = None) -> Finding:
    """Check every `sari` on PATH. Two versions would start two daemons that replace each other."""
    programs: dict[str, str] = {}
    path = environment.get("PATH", os.defpath)
    # Not those of a relative entry or the project's, except this one: their version is asked for by running them.
    trusted = search_path(path, [project] if project is not None else (), environment).split(os.pathsep)
    own = os.path.realpath(_own_program())
    for folder in filter(os.path.isabs, path.split(os.pathsep)):
        program = shutil.which("sari", path=folder)
        real = os.path.realpath(program) if program is not None else ""
        if program is not None and real not in programs and (folder in trusted or real == own):
            programs[real] = program
    versions = {path: _version_of(path) for path in programs.values()}
    shown = ", ".join(f"{path} ({version})" for path, version in versions.items())
    if not versions:
        fix = f"Add the folder of {_own_program()} to PATH; clients are configured by its full path and work without."
        return Finding("warning", "`sari` is not on the path", fix)
    if len(set(versions.values())) > 1:
        fix = "remove the ones you do not want, then run `sari install` again"
        return Finding("error", f"several versions are on the path: {shown}", fix)
    return Finding("ok", f"the command: {shown}")


def _own_programs(environment: Mapping[str, str]) -> set[str]:
    """Return every `sari` on PATH, and this one."""
    folders = environment.get("PATH", os.defpath).split(os.pathsep)
    found = [shutil.which("sari", path=folder) for folder in folders if os.path.isabs(folder)]
    return {os.path.realpath(program) for program in [*found, _own_program()] if program is not None}


def _own_program() -> str:
    try:
        return installed.program()
    except InstallError:
        return sys.executable


def _version_of(program: str) -> str:
    try:
        done = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=_VERSION_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return "does not start"
    words = done.stdout.split()
    return words[-1] if done.returncode == 0 and words else "does not start"


def client_findings(environment: Mapping[str, str], project: Path | None) -> list[Finding]:
    machine = installed.machine(environment)
    found: list[Finding] = []
    for client in CLIENTS.values():
        for scope in Scope if project is not None else (Scope.USER,):
            path = client.file(scope, machine, project or Path())
            within = None if scope is Scope.USER else project
            finding = _client_finding(client, scope, path, environment, within)
            if finding is not None:
                found.append(finding)
    return found


def _client_finding(
    client: Client, scope: Scope, path: Path, environment: Mapping[str, str], within: Path | None
) -> Finding | None:
    name = client.title if scope is Scope.USER else f"{client.title} (this project)"
    again = f"sari install --host {client.name} --scope {scope}"
    try:
        found = find(path, within)
        entry = None if found.data is None else client.configured(found.text)
    except Refused as error:
        return Finding("error", f"{name}: {path} cannot be read: {error.why}", f"fix or replace it, then {again}")
    except (OSError, InstallError) as error:
        fix = f"fix the file (its client cannot read it either), then {again}"
        return Finding("error", f"{name}: {path} cannot be read: {error}", fix)
    if entry is None:
        return Finding("ok", f"{name}: not configured") if scope is Scope.USER else None
    wrong = _entry_trouble(entry, environment, trusted=scope is Scope.USER)
    if wrong is not None:
        return Finding("error", f"{name}: {path}: {wrong}", again)
    if entry.get("disabled") is True or entry.get("enabled") is False:
        return Finding(
            "warning", f"{name}: {path}: sari is switched off there", "switch it on in the client's settings"
        )
    return Finding("ok", f"{name}: {path} starts {entry['command']}")


def _entry_trouble(entry: Mapping[str, object], environment: Mapping[str, str], *, trusted: bool) -> str | None:
    """Return the problem with an entry. The command of an entry that is not `trusted` is not run: it comes with the
    project.
    """
    command, arguments = entry.get("command"), entry.get("args")
    if not isinstance(command, str) or not command:
        return "the entry has no command"
    if not os.path.isabs(command):
        return f"it starts {command!r} by the client's own path, which may be another sari or none"
    if not os.access(command, os.X_OK):
        return f"it starts {command}, which no longer exists"
    words = arguments if isinstance(arguments, list) else []
    if not {"mcp", "proxy"} & {str(word) for word in words}:
        return "its arguments do not name `mcp`"
    if not trusted and os.path.realpath(command) not in _own_programs(environment):
        return f"it starts {command}, which is not the sari of this machine, and was not run to see what it is"
    version = _version_of(command)
    if version != __version__:
        return f"it starts sari {version}, and this is {__version__}"
    carried = entry.get("env")
    settings = carried if isinstance(carried, dict) else {}
    for variable in installed.CARRIED:
        here, there = environment.get(variable, ""), settings.get(variable, "")
        if here != there:
            return (
                f"{variable} is {here or 'not set'} here and {there or 'not set'} for the client, whose environment "
                "hides yours: the two would use different daemons"
            )
    return None


def damaged_findings(environment: Mapping[str, str]) -> list[Finding]:
    """Report a damaged registry, which was set aside and rebuilt."""
    where = find_layout(environment)
    damaged = sorted(Path(where.data_dir).glob(f"{os.path.basename(where.registry_file)}.damaged-*"))
    if not damaged:
        return []
    what = f"the registry was found damaged, set aside as {damaged[-1]} and rebuilt"
    return [Finding("warning", what, f"nothing; delete {damaged[-1]} when you have looked at it")]


def watch_finding(project: Path | None, limits: Path = Path("/proc/sys/fs/inotify")) -> Finding:
    """Check the inotify limit. Linux watches folders individually, up to a limit shared by all of a user's programs."""
    try:
        watches = int((limits / "max_user_watches").read_text())
        instances = int((limits / "max_user_instances").read_text())
    except (OSError, ValueError):
        return Finding("ok", "this system has no limit of watched folders")
    fix = _RAISE.format("max_user_watches=1048576")
    folders = _count_folders(project, watches) if project is not None else 0
    if folders >= watches:
        return Finding("error", f"{watches} folders can be watched, and this workspace has more", fix)
    if watches < _FEW_WATCHES:
        return Finding("warning", f"only {watches} folders can be watched by all programs together", fix)
    if instances < _FEW_INSTANCES:
        more = _RAISE.format("max_user_instances=1024")
        return Finding("warning", f"only {instances} programs can watch at once", more)
    return Finding("ok", f"{watches} folders can be watched")


def _count_folders(root: Path, limit: int) -> int:
    """Count the folders below `root` except `.git`, up to the limit: a higher count would make no difference."""
    count = 0
    most = min(limit, _MOST_FOLDERS)
    for _, folders, _ in os.walk(root):
        if ".git" in folders:
            folders.remove(".git")
        count += 1
        if count >= most:
            break
    return count
