"""Throw-away process workspaces for `codehub doctor`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from codehub.adapters.base_python import base_python
from codehub.adapters.probe_workspaces import PROBE_FILE, PROBE_MEMORY_BYTES, PROBE_PIDS
from codehub.adapters.process.cgroup import Limits
from codehub.adapters.process.instances import ProcessInstances
from codehub.adapters.process.isolation import find_isolation
from codehub.adapters.process.launch_plan import ProcessOptions
from codehub.adapters.process.netns import GATEWAY, INTERFACE
from codehub.adapters.process.records import RECORD
from codehub.domain.profiles import AppProfile
from codehub.ports.instances import InstanceSpec, Mount, MountKind

_GRACE_S = 0.5
_GUEST = "198.18.0.100"  # the address that each workspace has in its own network


class ProcessProbes:
    def __init__(self, base: Path, options: ProcessOptions) -> None:
        self.memory_bytes = min(options.limits.memory_bytes, PROBE_MEMORY_BYTES)
        self.pids = min(options.limits.pids, PROBE_PIDS)
        self.interface = INTERFACE if options.use_bubblewrap and find_isolation().slirp else ""
        before = options.isolated_before
        options = replace(
            options,
            grace_s=_GRACE_S,
            limits=Limits(self.memory_bytes, options.limits.cpus, self.pids),
            # Only real workspaces are proof that workspaces ran isolated here.
            isolated_before=before if before is not None and before.exists() else None,
        )
        self._run = base / "run"
        self.instances = ProcessInstances(self._run, options)

    async def prepare(self) -> str:
        return GATEWAY  # where slirp4netns would lead to this machine

    def spec(self, name: str, home: Path, env: dict[str, str]) -> InstanceSpec:
        command = (str(base_python()), "-I", "-S", "-B", f"{{home}}/{PROBE_FILE}", "{socket}")
        profile = AppProfile(name="probe", command=command)
        return InstanceSpec(name, "probe", profile, Mount(MountKind.DIR, str(home)), env=env)

    async def address(self, name: str) -> str:
        return _GUEST

    def record(self, name: str) -> Path:
        return self._run / name / RECORD

    async def dropped_metadata(self) -> int | None:
        return None  # routes refuse it, and the probe sees that

    async def close(self) -> None:
        """Nothing is left outside of the directory."""
