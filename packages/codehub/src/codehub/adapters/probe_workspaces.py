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
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol

from codehub.adapters import boundary_probe
from codehub.adapters.filesystem.remove import remove_tree
from codehub.domain.boundaries import Attempt, Outcome
from codehub.domain.errors import CodeHubError, Transient
from codehub.ports.fence import ignore_progress, no_fence
from codehub.ports.instances import Instances, InstanceSpec

# Small, so that reaching them costs the machine little; enough for the helper and the probe themselves.
PROBE_MEMORY_BYTES, PROBE_PIDS = 128 << 20, 64
PROBE_FILE = "probe.py"  # in the home
_PREFIX = "doctor-"
_POLL_INTERVAL_S = 0.05
_LAST_LINES = 5  # of a workspace that ended, for the message


@dataclass(frozen=True, slots=True)
class Neighbour:
    """Another workspace, and what it has that the first must not reach."""

    port: int
    address: str  # in its network
    abstract: str
    socket_path: str
    home: Path
    record: Path  # what CodeHub keeps about it, secrets included


class ProbeRuntime(Protocol):
    """What differs between runtimes. One for each directory of throw-away workspaces."""

    memory_bytes: int
    pids: int
    interface: str  # of a workspace's way out; empty if workspaces have no network of their own

    @property
    def instances(self) -> Instances: ...

    async def prepare(self) -> str:
        """Prepare what only the first workspace of a machine waits for.

        Returns the address in a workspace's network that would lead to this machine.
        """
        ...

    def spec(self, name: str, home: Path, env: dict[str, str]) -> InstanceSpec:
        """Return a workspace that runs the probe."""
        ...

    async def address(self, name: str) -> str:
        """Return the address of a running workspace in its network."""
        ...

    def record(self, name: str) -> Path:
        """Return a file that CodeHub keeps about a running workspace."""
        ...

    async def dropped_metadata(self) -> int | None:
        """Return how many packets to cloud metadata were dropped without an answer; None if that is not known."""
        ...

    async def close(self) -> None:
        """Remove what is left when all workspaces are deleted, and close connections."""
        ...


class ProbeWorkspaces:
    def __init__(self, base: Path, runtime: ProbeRuntime, lifetime_s: int) -> None:
        self._base = base
        self._runtime = runtime
        self._instances = runtime.instances
        self._lifetime_s = lifetime_s
        self._started = False

    async def start_neighbour(self) -> Neighbour:
        name = f"{_PREFIX}b-{secrets.token_hex(6)}"
        home = await self._start(name, {"abstract": name, "seconds": self._lifetime_s})
        async for line in self._lines(name):
            upstream = await self._instances.resolve_upstream(name)
            if "port" in line and upstream is not None:
                address = await self._runtime.address(name)
                record = self._runtime.record(name)
                return Neighbour(int(str(line["port"])), address, name, upstream.socket_path, home, record)
        text = b"".join([piece async for piece in self._instances.logs(name, follow=False, tail=_LAST_LINES)])
        message = text.decode(errors="replace").strip() or "it printed nothing"
        raise Transient(f"the second workspace ended before it listened: {message}")

    async def attack(self, attempts: Sequence[Attempt], outcomes: dict[Attempt, Outcome]) -> None:
        """From a workspace of its own, into `outcomes`. A caller who stops waiting keeps what was seen until then."""
        name = f"{_PREFIX}a-{secrets.token_hex(6)}"
        plan = {
            "seconds": self._lifetime_s,
            "interface": self._runtime.interface,
            "network_s": self._lifetime_s / 2,
            "attempts": [asdict(attempt) for attempt in attempts],
        }
        dropped = await self._runtime.dropped_metadata()
        await self._start(name, plan)
        async for line in self._lines(name):
            if "number" in line:
                succeeded = line["succeeded"]
                attempt = attempts[int(str(line["number"]))]
                outcome = Outcome(succeeded if isinstance(succeeded, bool) else None, str(line["message"]))
                if outcome.succeeded is None and not attempt.answers and await self._dropped_since(dropped):
                    outcome = Outcome(False, "dropped by the packet filter")
                outcomes[attempt] = outcome
            elif line.get("done"):
                return

    async def _dropped_since(self, before: int | None) -> bool:
        """Return whether the packet filter counted packets to cloud metadata. Silence alone proves nothing."""
        now = await self._runtime.dropped_metadata()
        return before is not None and now is not None and now > before

    async def _start(self, name: str, plan: dict[str, object]) -> Path:
        home = self._base / "homes" / name
        home.mkdir(parents=True)
        home.parent.chmod(0o711)
        home.chmod(0o700)
        shutil.copyfile(boundary_probe.__file__, home / PROBE_FILE)
        self._started = True
        spec = self._runtime.spec(name, home, {boundary_probe.VARIABLE: json.dumps(plan)})
        await self._instances.start(spec, ignore_progress, no_fence)
        return home

    async def _lines(self, name: str) -> AsyncIterator[dict[str, object]]:
        """Yield what the probe reports, until it ends. Skips lines of other programs of the workspace."""
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

    async def remove(self, *, abandoned: bool = False) -> None:
        # An engine that does not answer has nothing to remove if nothing was started.
        names = await self._instances.list_all() if self._started or abandoned else ()
        done = await asyncio.gather(
            *(self._instances.delete(name, no_fence) for name in names), return_exceptions=True
        )
        for failed in done:
            if isinstance(failed, BaseException):
                raise failed
        await self._runtime.close()
        await asyncio.to_thread(remove_tree, self._base)


# Makes the runtime for a directory.
MakeRuntime = Callable[[Path], ProbeRuntime]


@contextlib.asynccontextmanager
async def probe_workspaces(parent: Path, make: MakeRuntime, lifetime_s: int) -> AsyncIterator[ProbeWorkspaces]:
    """Open throw-away workspaces beside the real ones, or in a temporary directory if `parent` is not there yet."""
    if os.access(parent, os.W_OK | os.X_OK):
        await _remove_abandoned(parent, make)
    else:
        parent = Path(tempfile.gettempdir())
    base = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
    with _held(base):
        base.chmod(0o711)
        made = ProbeWorkspaces(base, make(base), lifetime_s)
        try:
            yield made
        finally:
            await asyncio.shield(made.remove())


async def _remove_abandoned(parent: Path, make: MakeRuntime) -> None:
    for base in parent.glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError, CodeHubError):  # in use, or gone: its own doctor removes it
            # Records name processes to end: those of another user are not believed.
            if base.lstat().st_uid == os.geteuid():
                with _held(base):
                    await ProbeWorkspaces(base, make(base), 0).remove(abandoned=True)


@contextlib.contextmanager
def _held(base: Path) -> Iterator[None]:
    """Lock the directory while its doctor lives, so that no other one removes it as abandoned."""
    fd = os.open(base, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(fd)
