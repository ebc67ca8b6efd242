"""Workspaces as processes. Starts supervisors, finds them again by their records, and ends them.

Knows nothing of the database, of the proxy's ports or of archives. All state is in `run_dir`, so any CodeHub process on
this machine sees the same instances, and a restarted one takes them over.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import shutil
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from socket import AF_INET

import psutil

from codehub.adapters.base_python import base_python
from codehub.adapters.filesystem.ownership import own, uid_for
from codehub.adapters.health import answers, filled, secret_of
from codehub.adapters.process import netns
from codehub.adapters.process.cgroup import Limits
from codehub.adapters.process.confinement import SECCOMP_FD, Confinement
from codehub.adapters.process.isolation import Isolation, command_line, find_isolation
from codehub.adapters.process.layout import RunLayout
from codehub.adapters.process.output import output
from codehub.adapters.process.records import Record, boot_id, exit_reason, read_record
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
from codehub.adapters.process.stopping import end_tree
from codehub.adapters.process.usage import UsageMeter
from codehub.adapters.process.watching import ExitWatch
from codehub.adapters.workspaced_launch import FOLDER, SOCKET_NAME, Launch, words
from codehub.domain.errors import BackendDown, Terminal, Transient
from codehub.domain.model import Progress
from codehub.domain.networks import blocked_networks
from codehub.domain.profiles import AppProfile, Runs
from codehub.domain.routing import workspace_path
from codehub.ports.fence import Fence, Report
from codehub.ports.instances import ABSENT, InstanceSpec, InstanceStatus, MountKind, Upstream, spec_digest

# Installs a program when it is first needed and returns its directory.
Tool = Callable[[Report], Path]


@dataclass(frozen=True, slots=True)
class Tools:
    """What every workspace gets beside its IDE. `pip` is a folder with pip's package, `node` one with node and npm."""

    python: Path
    pip: Path | None = None
    node: Path | None = None


def _only_python() -> Tools:
    return Tools(base_python())


_SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_PASSED_ON = ("LANG", "LC_ALL", "TZ")
_PORTS = range(20_000, 32_000)
_PORT_TRIES = 200


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


class ProcessInstances:
    name = "process"
    runs = Runs.COMMAND

    def __init__(
        self,
        run_dir: Path,
        options: ProcessOptions | None = None,
        tools: Mapping[str, Tool] | None = None,
        several_users: Callable[[], Awaitable[bool]] | None = None,
        toolchain: Callable[[], Tools] = _only_python,
        owner_name: Callable[[str], Awaitable[str]] | None = None,
    ) -> None:
        self._several_users = several_users
        self._owner_name = owner_name
        self._toolchain = toolchain
        self._places = RunLayout(run_dir)
        self._options = options or ProcessOptions()
        self._tools = tools or {}
        self._exits = ExitWatch()
        self._meter = UsageMeter()

    @property
    def isolates_users(self) -> bool:
        """Return whether users' workspaces are isolated from each other. Without that, a second user must be refused.

        Uses the result of the coordinator, which starts workspaces: an API that is not root is less capable.
        """
        recorded = self._places.recorded_isolation()
        return self._isolation().separates_users if recorded is None else recorded

    def record_isolation(self) -> None:
        """Record the isolation for processes that call `isolates_users`.

        Called by the process that starts workspaces. Blocking.
        """
        with contextlib.suppress(OSError):  # a full disk: they determine it themselves
            self._places.record_isolation(self._isolation().separates_users)

    def _isolation(self) -> Isolation:
        found = find_isolation()
        return found if self._options.use_bubblewrap else replace(found, bubblewrap="", slirp="")

    async def ping(self) -> None:
        try:
            self._places.prepare()
        except OSError as error:
            raise BackendDown(f"{self._places.root} cannot be used: {error.strerror}") from error

    async def start(self, spec: InstanceSpec, report: Report, fence: Fence, *, replace: bool = False) -> None:
        record = self._record(spec.workspace_id)
        digest = spec_digest(spec)
        if record is not None and record.alive and record.spec_digest == digest and not replace:
            return
        await self._require_isolation()
        programs = await self._programs(spec.profile, report)
        tools = await asyncio.to_thread(self._toolchain)
        owner = "" if self._owner_name is None else await self._owner_name(spec.workspace_id)
        fence()
        if record is not None:
            await end_tree(record, self._options.grace_s)
            await asyncio.to_thread(self._remove_leavings, record.identity)
        report(Progress("start", 0, 1, "steps"))
        prepared = await asyncio.to_thread(self._prepare, spec, programs, tools, owner, digest)
        fence()
        await self._launch(prepared, spec.workspace_id)
        started = self._record(spec.workspace_id)
        if started is not None:
            self._exits.follow(started)
        self._exits.tell(spec.workspace_id)

    async def _require_isolation(self) -> None:
        """Refuse isolation that is weaker than before, or too weak for several users, unless an admin allowed it."""
        options, isolation = self._options, await asyncio.to_thread(self._isolation)
        before = options.isolated_before
        if isolation.separates_users:
            if before is not None and not before.exists():
                before.touch(mode=0o600)
            return
        if options.isolation == "best-effort":
            return
        if options.isolation == "required":
            why = "CODEHUB_ISOLATION=required"
        elif before is not None and before.exists():
            why = "workspaces have been isolated here before"
        elif self._several_users is not None and await self._several_users():
            why = "there are several users"
        else:
            return
        raise Terminal(
            f"not started: {'; '.join(isolation.missing) or 'the sandbox is switched off'}; and {why}. "
            "Repair it (`codehub doctor`), or set CODEHUB_ISOLATION=best-effort to start workspaces all the same"
        )

    async def _programs(self, profile: AppProfile, report: Report) -> tuple[Path, ...]:
        """Return where the command's program is installed, if CodeHub installs it."""
        if not profile.command:
            raise Terminal(f"the profile {profile.name!r} has no command, and workspaces here are processes")
        tool = self._tools.get(profile.command[0])
        return () if tool is None else (await asyncio.to_thread(tool, report),)

    def _prepare(
        self, spec: InstanceSpec, programs: tuple[Path, ...], tools: Tools, owner: str, digest: str
    ) -> dict[str, object]:
        if spec.mount.kind is not MountKind.DIR:
            raise Terminal(f"a process needs a directory as its home, not a {spec.mount.kind}")
        home, uid = Path(spec.mount.source), uid_for(spec.workspace_id)
        if not home.is_dir():
            raise Transient(f"the home {home} does not exist")
        run, identity = self._places.make(spec.workspace_id), secrets.token_hex(8)
        sockets = self._places.make_socket_dir(identity, uid)
        isolation = self._isolation()
        inside = HOME if isolation.bubblewrap else str(home)
        # A profile's command may be a program of CodeHub's own environment, which is on no workspace's PATH.
        places = ":".join([*map(str, programs), str(Path(sys.executable).parent), _SYSTEM_PATH])
        program = shutil.which(spec.profile.command[0], path=places)
        if program is None:
            raise Terminal(f"{spec.profile.command[0]!r} is not installed on this machine")
        path = _path(inside, (*programs, *((tools.node,) if tools.node else ())))
        if not isolation.bubblewrap:
            check_reachable(home, uid)
            check_reachable(sockets, uid)
            check_reachable(Path(program).resolve(), uid)
            check_reachable(FOLDER / "__main__.py", uid)
            check_reachable(tools.python, uid)
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
            home=values["home"],
            runtime=str(sockets),
            listen=f"unix:{sockets / SOCKET_NAME}",
            secret=secrets.token_urlsafe(32),
            hidden_ports=(port,) if port else (),
            pip=str(tools.pip or ""),
            awaits_environment=spec.awaits_environment,
        )
        ide = [program, *(filled(word, values) for word in spec.profile.command[1:])]
        command = words(str(tools.python), FOLDER, ide)
        plan = self._confinement(
            identity, run, isolation, self._limits(spec), (socket_path, port) if bridged else ("", 0)
        )
        if isolation.bubblewrap:
            nameserver = netns.NAMESERVER if isolation.slirp else None
            person = Person(os.geteuid() if uid is None else uid, owner)
            write_etc(run / "etc", person, spec.workspace_id, nameserver, path)
            shared = (place for place in (tools.pip, tools.node and tools.node.parent) if place is not None)
            readable = (*python_dirs(program), *(place.parent for place in programs), FOLDER, *shared)
            view = View(
                home=home,
                writable=(sockets,),
                readable=tuple(dict.fromkeys(readable)),
                hidden=self._options.hidden,
                etc=run / "etc",
                # It is in memory and counts as the workspace's; half of the limit leaves room for its programs.
                tmp_bytes=self._limits(spec).memory_bytes // 2,
                seccomp_fd=SECCOMP_FD if plan.seccomp else None,
            )
            command = wrap(isolation.bubblewrap, command, view, uid)
        header = secret_of(spec.profile, secret)
        record = {
            "workspace_id": spec.workspace_id,
            "identity": identity,
            "spec_digest": digest,
            "boot": boot_id(),
            "uid": uid,
            "host": "" if socket_path else "127.0.0.1",
            "port": 0 if socket_path else port,
            "socket_path": socket_path,
            "secret": header,
            "workspaced_socket": str(sockets / SOCKET_NAME),
            "workspaced_secret": helper.secret,
        }
        return {
            "run_dir": str(run),
            "grace_s": self._options.grace_s,
            "log_bytes": self._options.log_bytes,
            "uid": uid,
            "sandboxed": bool(isolation.bubblewrap),
            "command": command,
            "env": self._environment(spec, values, path, identity) | helper.environment,
            "cwd": str(home),
            "record": record,
            "confinement": plan.as_dict(),
        }

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
        return Confinement(
            cgroups=() if isolation.cgroups is None else isolation.cgroups.make(identity, limits),
            pids=limits.pids,
            seccomp=str(run / "seccomp.bpf") if isolation.bubblewrap and program is not None else "",
            slirp=isolation.slirp,
            blocked=blocked_networks(_own_addresses(), self._options.allowed_networks) if isolation.slirp else (),
            bridge_socket=bridge[0],
            bridge_port=bridge[1],
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
        # The template's variables never replace ours or those that the profile needs to run.
        return dict(spec.env) | env | {key: filled(value, values) for key, value in spec.profile.env.items()}

    async def _launch(self, prepared: dict[str, object], workspace_id: str) -> None:
        launcher = await asyncio.create_subprocess_exec(
            *command_line("codehub.adapters.process.supervisor:main"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
            cwd="/",
            env={"PATH": _SYSTEM_PATH},
        )
        # Shielded: a launcher that was started is awaited, or an instance would start without our knowledge.
        _, said = await asyncio.shield(launcher.communicate(json.dumps(prepared).encode()))
        if launcher.returncode != 0:
            raise Transient(
                f"the instance of {workspace_id} could not be started: {said.decode(errors='replace')[-500:]}"
            )

    async def stop(self, workspace_id: str, fence: Fence) -> None:
        record = self._record(workspace_id)
        if record is not None:
            fence()
            await end_tree(record, self._options.grace_s)
            self._exits.tell(workspace_id)

    async def delete(self, workspace_id: str, fence: Fence) -> None:
        record = self._record(workspace_id)
        await self.stop(workspace_id, fence)
        fence()
        if record is not None:
            await asyncio.to_thread(self._remove_leavings, record.identity)
        await asyncio.to_thread(self._places.remove, workspace_id, "" if record is None else record.identity)

    def _remove_leavings(self, identity: str) -> None:
        """Remove what a finished start has outside its run directory."""
        self._places.remove_sockets(identity)
        cgroups = find_isolation().cgroups
        if cgroups is not None:
            cgroups.remove(identity)

    async def status(self, workspace_id: str) -> InstanceStatus:
        record = self._record(workspace_id)
        return ABSENT if record is None else self._status(record)

    def _status(self, record: Record) -> InstanceStatus:
        alive = record.alive
        return InstanceStatus(
            exists=True,
            running=alive,
            identity=record.identity,
            spec_digest=record.spec_digest,
            upstream=record.upstream if alive else None,
            workspaced=record.workspaced if alive else None,
            exit_reason=None if alive else exit_reason(self._places.run_dir(record.workspace_id)),
        )

    async def list_all(self) -> Mapping[str, InstanceStatus]:
        return await asyncio.to_thread(lambda: {r.workspace_id: self._status(r) for r in self._records()})

    def _records(self) -> list[Record]:
        found = (self._record(workspace_id) for workspace_id in self._places.workspaces())
        return [record for record in found if record is not None]

    def _record(self, workspace_id: str) -> Record | None:
        record = read_record(self._places.run_dir(workspace_id))
        return record if record is not None and record.workspace_id == workspace_id else None

    async def probe(self, workspace_id: str, profile: AppProfile) -> bool:
        upstream = await self.resolve_upstream(workspace_id)
        return upstream is not None and await answers(upstream, workspace_id, profile)

    async def resolve_upstream(self, workspace_id: str) -> Upstream | None:
        return (await self.status(workspace_id)).upstream

    def watch(self) -> AsyncIterator[str]:
        return self._exits.hints([record for record in self._records() if record.alive])

    def logs(self, workspace_id: str, *, follow: bool, tail: int | None = None) -> AsyncIterator[bytes]:
        return output(self._places.run_dir(workspace_id), follow=follow, tail=tail)

    async def usage(self, workspace_id: str) -> Mapping[str, float] | None:
        record = self._record(workspace_id)
        if record is None or not record.alive:
            return None
        return await asyncio.to_thread(self._meter.of, record)


def _path(home: str, programs: Sequence[Path]) -> str:
    """Return the PATH. The user's own directories come first, so that programs from pip and npm are found."""
    return ":".join([f"{home}/.local/bin", f"{home}/.venv/bin", *map(str, programs), _SYSTEM_PATH])


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
