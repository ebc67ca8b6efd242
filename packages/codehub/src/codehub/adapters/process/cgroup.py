"""Limits memory, CPU and processes with one control group per workspace, version 2, or 1 if the machine has nothing else.

Knows files below the cgroup mounts, but not instances. A limit that cannot be set is reported, never ignored.
"""

from __future__ import annotations

import errno
import os
import time
from dataclasses import dataclass
from pathlib import Path

from codehub.domain.errors import Transient

_PERIOD_US = 100_000
_CONTROLLERS = ("memory", "cpu", "pids")
_TOP = "codehub"
# The kernel frees a group shortly after its last process is gone.
_RMDIR_TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True)
class Limits:
    memory_bytes: int
    cpus: float
    pids: int


@dataclass(frozen=True, slots=True)
class Cgroups:
    """Control groups.

    `tops` are the parent directories of the workspaces' groups: one for version 2, one per controller for 1.
    """

    version: int
    tops: tuple[Path, ...]

    def make(self, name: str, limits: Limits) -> tuple[str, ...]:
        """Create the group with its limits, and return the directories that its processes must join."""
        made = []
        try:
            for top in self.tops:
                group = top / name
                group.mkdir(exist_ok=True)
                made.append(str(group))
            for path, value in self._values(name, limits):
                path.write_text(value)
        except OSError as error:
            raise Transient(f"the limits of {name} cannot be set in {error.filename}: {error.strerror}") from error
        return tuple(made)

    def _values(self, name: str, limits: Limits) -> list[tuple[Path, str]]:
        quota = str(max(1000, int(limits.cpus * _PERIOD_US)))
        if self.version == 2:
            group = self.tops[0] / name
            values = [
                (group / "memory.max", str(limits.memory_bytes)),
                (group / "memory.oom.group", "0"),
                (group / "cpu.max", f"{quota} {_PERIOD_US}"),
                (group / "pids.max", str(limits.pids)),
            ]
            swap = group / "memory.swap.max"
            return [*values, (swap, "0")] if swap.exists() else values
        memory, cpu, pids = (top / name for top in self.tops)
        values = [(memory / "memory.limit_in_bytes", str(limits.memory_bytes))]
        both = memory / "memory.memsw.limit_in_bytes"
        if both.exists():
            # It may never be below the other limit, so it is raised before and lowered after it.
            raises = limits.memory_bytes > int(both.read_text())
            values.insert(0 if raises else 1, (both, str(limits.memory_bytes)))
        return [
            *values,
            (cpu / "cpu.cfs_period_us", str(_PERIOD_US)),
            (cpu / "cpu.cfs_quota_us", quota),
            (pids / "pids.max", str(limits.pids)),
        ]

    def remove(self, name: str) -> None:
        """Remove the group once none of its processes runs. Succeeds if it is already gone."""
        deadline = time.monotonic() + _RMDIR_TIMEOUT_S
        for top in self.tops:
            while True:
                try:
                    (top / name).rmdir()
                except FileNotFoundError:
                    break
                except OSError as error:
                    if error.errno != errno.EBUSY or time.monotonic() > deadline:
                        raise Transient(f"the control group {top / name} is still in use") from error
                    time.sleep(0.01)
                else:
                    break


def find_cgroups() -> Cgroups | None:
    """Return where this process may create groups with all three controllers, or None."""
    mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    return _version_2(mounts) or _version_1(mounts)


def _version_2(mounts: list[list[str]]) -> Cgroups | None:
    for _, place, kind, *_ in mounts:
        if kind != "cgroup2":
            continue
        for parent in _parents(Path(place)):
            try:
                if not set(_CONTROLLERS) <= set((parent / "cgroup.controllers").read_text().split()):
                    continue
                (parent / "cgroup.subtree_control").write_text(" ".join(f"+{name}" for name in _CONTROLLERS))
                top = parent / _TOP
                top.mkdir(exist_ok=True)
                (top / "cgroup.subtree_control").write_text(" ".join(f"+{name}" for name in _CONTROLLERS))
            except OSError:
                continue
            return Cgroups(2, (top,))
    return None


def _parents(mount: Path) -> list[Path]:
    """Return possible parents: the top for root, and a subtree that a manager delegated for other users."""
    if os.geteuid() == 0:
        return [mount]
    own = next(
        (line[3:] for line in Path("/proc/self/cgroup").read_text().splitlines() if line.startswith("0::")), "/"
    )
    place = mount / own.lstrip("/")
    return [parent for parent in (place.parent, place) if os.access(parent / "cgroup.subtree_control", os.W_OK)]


def _version_1(mounts: list[list[str]]) -> Cgroups | None:
    places = {
        name: Path(place)
        for _, place, kind, options, *_ in mounts
        if kind == "cgroup"
        for name in _CONTROLLERS
        if name in options.split(",")
    }
    if places.keys() != set(_CONTROLLERS):
        return None
    tops = tuple(places[name] / _TOP for name in _CONTROLLERS)
    try:
        for top in tops:
            top.mkdir(exist_ok=True)
    except OSError:
        return None
    return Cgroups(1, tops) if all(os.access(top, os.W_OK) for top in tops) else None
