"""Plans the launch of a process workspace: its command line, environment, sandbox view and limits.

The plan is what the supervisor reads from its standard input. The files that a launch needs (its run directory, `/etc`,
the seccomp program) are written here.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import socket
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import chain
from pathlib import Path
from socket import AF_INET

import psutil

from codehub.adapters.filesystem.ownership import own, uid_for
from codehub.adapters.health import filled, secret_of
from codehub.adapters.portable import put_compiled
from codehub.adapters.process import netns
from codehub.adapters.process.cgroup import Limits
from codehub.adapters.process.confinement import SECCOMP_FD, Confinement
from codehub.adapters.process.isolation import Isolation, find_isolation
from codehub.adapters.process.layout import RunLayout
from codehub.adapters.process.records import boot_id
from codehub.adapters.process.sandbox import (
    HOME,
    Person,
    View,
    check_reachable,
    python_dirs,
    wrap,
    write_etc,
)
from codehub.adapters.process.seccomp import seccomp_program
from codehub.adapters.workspaced_launch import FOLDER, SOCKET_NAME, Launch, words
from codehub.domain.errors import Terminal, Transient
from codehub.domain.networks import blocked_networks
from codehub.domain.routing import workspace_path
from codehub.ports.instances import InstanceSpec, MountKind


@dataclass(frozen=True, slots=True)
class Tools:
    """What every workspace gets beside its IDE. `pip` is a folder with pip's package, `node` one with node and npm."""

    python: Path
    pip: Path | None = None
    node: Path | None = None


SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_PASSED_ON = ("LANG", "LC_ALL", "TZ")
_PORTS = range(20_000, 32_000)
_PORT_TRIES = 200
_compiling = threading.Lock()


@dataclass(frozen=True, slots=True)
class ProcessOptions:
    """Options of process instances. `hidden` are directories that no workspace may see: CodeHub's data, all homes."""

    grace_s: float = 10.0
    log_bytes: int = 8 << 20
    hidden: tuple[Path, ...] = ()
    use_bubblewrap: bool = True
    limits: Limits = field(default_factory=lambda: Limits(4 << 30, 2.0, 2048))
    allowed_networks: tuple[str, ...] = ()  # private networks that workspaces may reach
    user_namespaces: bool = False  # whether a workspace may create its own
    isolation: str = "auto"  # auto, required or best-effort: what to do if this machine cannot isolate
    isolated_before: Path | None = None  # a file that exists once a workspace ran isolated here


class LaunchPlanner:
    def __init__(self, layout: RunLayout, options: ProcessOptions) -> None:
        self._places = layout
        self._options = options

    def isolation(self) -> Isolation:
        found = find_isolation()
        return found if self._options.use_bubblewrap else replace(found, bubblewrap="", slirp="")

    def plan(
        self, spec: InstanceSpec, programs: tuple[Path, ...], tools: Tools, owner: str, digest: str
    ) -> dict[str, object]:
        if spec.mount.kind is not MountKind.DIR:
            raise Terminal(f"a process needs a directory as its home, not a {spec.mount.kind}")
        home, uid = Path(spec.mount.source), uid_for(spec.workspace_id)
        if not home.is_dir():
            raise Transient(f"the home {home} does not exist")
        with _compiling:
            _compile_helper(str(tools.python))
        run, identity = self._places.make(spec.workspace_id), secrets.token_hex(8)
        sockets = self._places.make_socket_dir(identity, uid)
        isolation = self.isolation()
        inside = HOME if isolation.bubblewrap else str(home)
        program = _find_program(spec.profile.command[0], programs)
        path = _path(inside, (*programs, *((tools.node,) if tools.node else ())))
        if not isolation.bubblewrap:
            for needed in (home, sockets, Path(program).resolve(), FOLDER / "__main__.py", tools.python):
                check_reachable(needed, uid)
        own(home, uid)
        secret = secrets.token_urlsafe(32)
        by_socket = any("{socket}" in word for word in spec.profile.command)
        # In its own network every port is free, and a bridge forwards a socket to it.
        bridged = not by_socket and bool(isolation.slirp)
        port = 0 if by_socket else spec.profile.port if bridged else _free_port()
        socket_path = str(sockets / "ide.sock") if by_socket or bridged else ""
        values = {
            "port": str(port),
            "socket": socket_path,
            "base_path": workspace_path(spec.workspace_id),
            "home": inside,
            "id": spec.workspace_id,
            "secret": secret,
        }
        helper = Launch(
            home=inside,
            runtime=str(sockets),
            listen=f"unix:{sockets / SOCKET_NAME}",
            secret=secrets.token_urlsafe(32),
            hidden_ports=(port,) if port else (),
            ide=port or socket_path,
            pip=str(tools.pip or ""),
            awaits_environment=spec.awaits_environment,
        )
        ide = [program, *(filled(word, values) for word in spec.profile.command[1:])]
        command = words(str(tools.python), FOLDER, ide)
        confinement = self._confinement(
            identity, run, isolation, self._limits(spec), (socket_path, port) if bridged else ("", 0)
        )
        if isolation.bubblewrap:
            person = Person(os.geteuid() if uid is None else uid, owner)
            write_etc(run / "etc", person, spec.workspace_id, netns.NAMESERVER if isolation.slirp else None, path)
            view = self._view(spec, home, sockets, run / "etc", program, programs, tools, confinement)
            command = wrap(isolation.bubblewrap, command, view, uid)
        return {
            "run_dir": str(run),
            "grace_s": self._options.grace_s,
            "log_bytes": self._options.log_bytes,
            "uid": uid,
            "sandboxed": bool(isolation.bubblewrap),
            "command": command,
            "env": self._environment(spec, values, path, identity) | helper.environment,
            "cwd": str(home),
            "record": {
                "workspace_id": spec.workspace_id,
                "identity": identity,
                "spec_digest": digest,
                "boot": boot_id(),
                "uid": uid,
                "host": "" if socket_path else "127.0.0.1",
                "port": 0 if socket_path else port,
                "socket_path": socket_path,
                "secret": secret_of(spec.profile, secret),
                "workspaced_socket": str(sockets / SOCKET_NAME),
                "workspaced_secret": helper.secret,
                "memory_limit_bytes": self._limits(spec).memory_bytes if confinement.cgroups else 0,
            },
            "confinement": confinement.as_dict(),
        }

    def _view(
        self,
        spec: InstanceSpec,
        home: Path,
        sockets: Path,
        etc: Path,
        program: str,
        programs: tuple[Path, ...],
        tools: Tools,
        confinement: Confinement,
    ) -> View:
        """Return what the sandbox shows of this machine."""
        shared = (place for place in (tools.pip, tools.node and tools.node.parent) if place is not None)
        readable = (*python_dirs(program), *(place.parent for place in programs), FOLDER, *shared)
        return View(
            home=home,
            writable=(sockets,),
            readable=tuple(dict.fromkeys(readable)),
            hidden=self._options.hidden,
            etc=etc,
            # It is in memory and counts as the workspace's; half of the limit leaves room for its programs.
            tmp_bytes=self._limits(spec).memory_bytes // 2,
            seccomp_fd=SECCOMP_FD if confinement.seccomp else None,
            terminals=Path(confinement.terminals) if confinement.terminals else None,
        )

    def _limits(self, spec: InstanceSpec) -> Limits:
        """Return the template's limits if set, else the installation's."""
        ours, size = self._options.limits, spec.size
        return Limits(
            ours.memory_bytes if size.memory_bytes is None else size.memory_bytes,
            ours.cpus if size.cpus is None else size.cpus,
            ours.pids,
        )

    def _confinement(
        self, identity: str, run: Path, isolation: Isolation, limits: Limits, bridge: tuple[str, int]
    ) -> Confinement:
        program = seccomp_program(os.uname().machine, user_namespaces=self._options.user_namespaces)
        if isolation.bubblewrap and program is not None:
            (run / "seccomp.bpf").write_bytes(program)
        terminals = run / "pts"
        terminals.mkdir(exist_ok=True)
        return Confinement(
            cgroups=() if isolation.cgroups is None else isolation.cgroups.make(identity, limits),
            pids=limits.pids,
            seccomp=str(run / "seccomp.bpf") if isolation.bubblewrap and program is not None else "",
            slirp=isolation.slirp,
            blocked=blocked_networks(_own_addresses(), self._options.allowed_networks) if isolation.slirp else (),
            bridge_socket=bridge[0],
            bridge_port=bridge[1],
            # Only root can mount a file system of terminals.
            terminals=str(terminals) if isolation.separates_users and os.geteuid() == 0 else "",
        )

    def _environment(self, spec: InstanceSpec, values: dict[str, str], path: str, identity: str) -> dict[str, str]:
        """Return the environment. Only the language and the time zone come from ours, because it contains secrets."""
        env = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
        env.setdefault("LANG", "C.UTF-8")
        env |= {
            "PATH": path,
            "HOME": values["home"],
            "USER": "coder",
            "LOGNAME": "coder",
            "SHELL": "/bin/bash" if Path("/bin/bash").exists() else "/bin/sh",
            "CODEHUB_WORKSPACE_ID": spec.workspace_id,
            "CODEHUB_INSTANCE": identity,
        }
        # The template's variables never replace ours or those that the profile needs to run. Unlike pip and git, node does
        # not trust the machine's certificates by itself: behind a company's proxy, npm would fail.
        defaults = {"NODE_USE_SYSTEM_CA": "1"}
        return (
            defaults | dict(spec.env) | env | {key: filled(value, values) for key, value in spec.profile.env.items()}
        )


@cache
def _compile_helper(python: str) -> None:
    """Compile `workspaced`, once per coordinator: an installer may not have done so, and workspaces cannot write it."""
    put_compiled(FOLDER, python)


def _find_program(name: str, programs: Sequence[Path]) -> str:
    # A profile's command may be a program of CodeHub's own environment, which is on no workspace's PATH.
    places = ":".join([*map(str, programs), str(Path(sys.executable).parent), SYSTEM_PATH])
    program = shutil.which(name, path=places)
    if program is None:
        raise Terminal(f"{name!r} is not installed on this machine")
    return program


def _path(home: str, programs: Sequence[Path]) -> str:
    """Return the PATH. The user's own directories come first, so that programs from pip and npm are found."""
    return ":".join([f"{home}/.local/bin", f"{home}/.venv/bin", *map(str, programs), SYSTEM_PATH])


def _own_addresses() -> list[str]:
    """Return the addresses of all interfaces of this machine, whose listeners workspaces must not reach."""
    found = {each.address for each in chain.from_iterable(psutil.net_if_addrs().values()) if each.family == AF_INET}
    return sorted(address for address in found if not address.startswith("127."))


def _free_port() -> int:
    """Return a free port below the system's range for outgoing connections.

    A connection could take a port of that range before the IDE listens.
    """
    for _ in range(_PORT_TRIES):
        number = _PORTS.start + secrets.randbelow(len(_PORTS))
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", number))
            return number
    raise Transient(f"no free port from {_PORTS.start} to {_PORTS.stop} was found")
