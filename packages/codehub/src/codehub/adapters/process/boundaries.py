"""Throw-away workspaces in which `codehub doctor` tries the boundaries: the same code path as real ones, smaller limits.

No database knows of them. Whatever happens they are removed: by this process, by their own alarm, and, if this process
was killed, by the next one that comes here.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import secrets
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from codehub.adapters.base_python import base_python
from codehub.adapters.filesystem.remove import remove_tree
from codehub.adapters.process import boundary_probe
from codehub.adapters.process.cgroup import Limits
from codehub.adapters.process.instances import ProcessInstances
from codehub.adapters.process.isolation import find_isolation
from codehub.adapters.process.launch_plan import ProcessOptions
from codehub.adapters.process.records import RECORD
from codehub.domain.boundaries import Attempt, Outcome
from codehub.domain.errors import CodeHubError, Transient
from codehub.domain.profiles import AppProfile
from codehub.ports.fence import ignore_progress, no_fence
from codehub.ports.instances import InstanceSpec, Mount, MountKind

# Small, so that reaching them costs the machine little; enough for the helper and the probe themselves.
PROBE_MEMORY_BYTES, PROBE_PIDS = 128 << 20, 64
_PREFIX = "doctor-"
_GRACE_S = 0.5
_POLL_INTERVAL_S = 0.05
_INTERFACE = "tap0"


@dataclass(frozen=True, slots=True)
class Neighbour:
    """Another workspace, and what it has that the first must not reach."""

    port: int
    abstract: str
    socket_path: str
    home: Path
    record: Path  # what CodeHub keeps about it, secrets included


class ProbeWorkspaces:
    def __init__(self, base: Path, options: ProcessOptions, lifetime_s: int) -> None:
        self._base = base
        self._lifetime_s = lifetime_s
        limits = Limits(
            min(options.limits.memory_bytes, PROBE_MEMORY_BYTES),
            options.limits.cpus,
            min(options.limits.pids, PROBE_PIDS),
        )
        before = options.isolated_before
        self._options = replace(
            options,
            grace_s=_GRACE_S,
            limits=limits,
            # Only real workspaces are proof that workspaces ran isolated here.
            isolated_before=before if before is not None and before.exists() else None,
        )
        self._instances = ProcessInstances(base / "run", self._options)

    @property
    def limits(self) -> Limits:
        return self._options.limits

    async def start_neighbour(self) -> Neighbour:
        name = f"{_PREFIX}b-{secrets.token_hex(6)}"
        home = await self._start(name, {"abstract": name, "seconds": self._lifetime_s})
        async for line in self._lines(name):
            upstream = await self._instances.resolve_upstream(name)
            if "port" in line and upstream is not None:
                return Neighbour(
                    int(str(line["port"])), name, upstream.socket_path, home, self._base / "run" / name / RECORD
                )
        raise Transient("the second workspace ended before it listened")

    async def attack(self, attempts: Sequence[Attempt], outcomes: dict[Attempt, Outcome]) -> None:
        """From a workspace of its own, into `outcomes`. A caller who stops waiting keeps what was seen until then."""
        name = f"{_PREFIX}a-{secrets.token_hex(6)}"
        plan = {
            "seconds": self._lifetime_s,
            "interface": _INTERFACE if self._options.use_bubblewrap and find_isolation().slirp else "",
            "network_s": self._lifetime_s / 2,
            "attempts": [asdict(attempt) for attempt in attempts],
        }
        await self._start(name, plan)
        async for line in self._lines(name):
            if "number" in line:
                succeeded = line["succeeded"]
                outcome = Outcome(succeeded if isinstance(succeeded, bool) else None, str(line["said"]))
                outcomes[attempts[int(str(line["number"]))]] = outcome
            elif line.get("done"):
                return

    async def _start(self, name: str, plan: dict[str, object]) -> Path:
        home = self._base / "homes" / name
        home.mkdir(parents=True)
        home.parent.chmod(0o711)
        home.chmod(0o700)
        shutil.copyfile(boundary_probe.__file__, home / "probe.py")
        command = (str(base_python()), "-I", "-S", "-B", "{home}/probe.py", "{socket}")
        spec = InstanceSpec(
            name,
            "probe",
            AppProfile(name="probe", command=command),
            Mount(MountKind.DIR, str(home)),
            env={boundary_probe.VARIABLE: json.dumps(plan)},
        )
        await self._instances.start(spec, ignore_progress, no_fence)
        return home

    async def _lines(self, name: str) -> AsyncIterator[dict[str, object]]:
        """What the probe says, until it ends. Lines of other programs of the workspace are passed over."""
        seen = 0
        while True:
            running = (await self._instances.status(name)).running
            text = b"".join([piece async for piece in self._instances.logs(name, follow=False)])
            whole = text.decode(errors="replace").rpartition("\n")[0].splitlines()
            for line in whole[seen:]:
                if line.startswith(boundary_probe.MARK):
                    yield json.loads(line.removeprefix(boundary_probe.MARK))
            seen = len(whole)
            if not running:
                return
            await asyncio.sleep(_POLL_INTERVAL_S)

    async def remove(self) -> None:
        names = await self._instances.list_all()
        done = await asyncio.gather(
            *(self._instances.delete(name, no_fence) for name in names), return_exceptions=True
        )
        for failed in done:
            if isinstance(failed, BaseException):
                raise failed
        await asyncio.to_thread(remove_tree, self._base)


@contextlib.asynccontextmanager
async def probe_workspaces(
    data_dir: Path, options: ProcessOptions, lifetime_s: int
) -> AsyncIterator[ProbeWorkspaces]:
    """Beside the real ones, or, where there is no data directory yet, in a temporary one."""
    parent = data_dir / "run"
    if os.access(parent, os.W_OK | os.X_OK):
        await _remove_abandoned(parent, options)
    else:
        parent = Path(tempfile.gettempdir())
    base = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
    with _held(base):
        base.chmod(0o711)
        made = ProbeWorkspaces(base, options, lifetime_s)
        try:
            yield made
        finally:
            await asyncio.shield(made.remove())


async def _remove_abandoned(parent: Path, options: ProcessOptions) -> None:
    for base in parent.glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError, CodeHubError):  # in use, or gone: its own doctor removes it
            # Records name processes to end: those of another user are not believed.
            if base.lstat().st_uid == os.geteuid():
                with _held(base):
                    await ProbeWorkspaces(base, options, 0).remove()


@contextlib.contextmanager
def _held(base: Path) -> Iterator[None]:
    """For as long as its doctor lives, so that no other one takes the directory for abandoned."""
    fd = os.open(base, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(fd)
