"""Workspaces as processes. Starts supervisors, finds them again by their records, and ends them.

Knows nothing of the database, of the proxy's ports or of archives. All state is in `run_dir`, so any CodeHub process on
this machine sees the same instances, and a restarted one takes them over.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path

from codehub.adapters.base_python import base_python
from codehub.adapters.health import answers
from codehub.adapters.process.isolation import command_line, find_isolation
from codehub.adapters.process.launch_plan import SYSTEM_PATH, LaunchPlanner, ProcessOptions, Tools
from codehub.adapters.process.layout import RunLayout
from codehub.adapters.process.output import output
from codehub.adapters.process.records import Record, exit_reason, read_record
from codehub.adapters.process.stopping import end_tree
from codehub.adapters.process.usage import UsageMeter
from codehub.adapters.process.watching import ExitWatch
from codehub.domain.errors import BackendDown, Terminal, Transient
from codehub.domain.model import Progress
from codehub.domain.profiles import AppProfile, Runs
from codehub.ports.fence import Fence, Report
from codehub.ports.instances import ABSENT, InstanceSpec, InstanceStatus, Upstream, spec_digest

# Installs a program when it is first needed and returns its directory.
Tool = Callable[[Report], Path]


def _only_python() -> Tools:
    return Tools(base_python())


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
        self._planner = LaunchPlanner(self._places, self._options)
        self._tools = tools or {}
        self._exits = ExitWatch()
        self._meter = UsageMeter()

    @property
    def isolates_users(self) -> bool:
        """Return whether users' workspaces are isolated from each other. Without that, a second user must be refused.

        Uses the result of the coordinator, which starts workspaces: an API that is not root is less capable.
        """
        recorded = self._places.recorded_isolation()
        return self._planner.isolation().separates_users if recorded is None else recorded

    def record_isolation(self) -> None:
        """Record the isolation for processes that call `isolates_users`.

        Called by the process that starts workspaces. Blocking.
        """
        with contextlib.suppress(OSError):  # a full disk: they determine it themselves
            self._places.record_isolation(self._planner.isolation().separates_users)

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
            await end_tree(record, self._options.grace_s, fence)
            await asyncio.to_thread(self._remove_leavings, record.identity)
        report(Progress("start", 0, 1, "steps"))
        prepared = await asyncio.to_thread(self._planner.plan, spec, programs, tools, owner, digest)
        fence()
        await self._launch(prepared, spec.workspace_id)
        started = self._record(spec.workspace_id)
        if started is not None:
            self._exits.follow(started)
        self._exits.tell(spec.workspace_id)

    async def _require_isolation(self) -> None:
        """Refuse isolation that is weaker than before, or too weak for several users, unless an admin allowed it."""
        options, isolation = self._options, await asyncio.to_thread(self._planner.isolation)
        before = options.isolated_before
        if isolation.separates_users:
            if before is not None and not before.exists():
                before.touch(mode=0o600)
            return
        if options.isolation == "best-effort":
            return
        why = isolation.why_refused(options.isolation, before)
        if not why and self._several_users is not None and await self._several_users():
            why = "there are several users"
        if not why:
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

    async def _launch(self, prepared: dict[str, object], workspace_id: str) -> None:
        launcher = await asyncio.create_subprocess_exec(
            *command_line("codehub.adapters.process.supervisor:main"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
            cwd="/",
            env={"PATH": SYSTEM_PATH},
        )
        # Shielded: a launcher that was started is awaited, or an instance would start without our knowledge.
        _, output = await asyncio.shield(launcher.communicate(json.dumps(prepared).encode()))
        if launcher.returncode != 0:
            raise Transient(
                f"the instance of {workspace_id} could not be started: {output.decode(errors='replace')[-500:]}"
            )

    async def stop(self, workspace_id: str, fence: Fence) -> None:
        record = self._record(workspace_id)
        if record is not None:
            fence()
            await end_tree(record, self._options.grace_s, fence)
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
