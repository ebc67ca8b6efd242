"""Limits of memory, CPU and processes: one control group per workspace, by version 2 or, where a machine has only that, 1.

Knows files below the cgroup mounts, nothing of instances. A limit that cannot be set is reported, never passed over.
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
# The kernel frees a group a moment after its last process is gone.
_RMDIR_TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True)
class Limits:
    memory_bytes: int
    cpus: float
    pids: int


@dataclass(frozen=True, slots=True)
class Cgroups:
    """`tops` are the directories below which each workspace gets its own: one for version 2, one a controller for 1."""

    version: int
    tops: tuple[Path, ...]

    def make(self, name: str, limits: Limits) -> tuple[str, ...]:
        """The group, with its limits; returns the directories that a process of it must join."""
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
            # Never below the other: raised before it, lowered after it.
            raises = limits.memory_bytes > int(both.read_text())
            values.insert(0 if raises else 1, (both, str(limits.memory_bytes)))
        return [
            *values,
            (cpu / "cpu.cfs_period_us", str(_PERIOD_US)),
            (cpu / "cpu.cfs_quota_us", quota),
            (pids / "pids.max", str(limits.pids)),
        ]

    def remove(self, name: str) -> None:
        """Nothing of it runs any more; gone already is success."""
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
    """Where this process may make groups with all three controllers; None where it may not."""
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
    """Root makes groups at the top; another user where a manager delegated a subtree to it."""
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
