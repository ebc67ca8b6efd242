"""Decides whether a workspace is busy from observations of its processes, without I/O.

A process is busy if it was started by exec, in a terminal or over SSH, runs in the foreground and used more than 5 % of a
core over the last minute. Time that it was ready to run and waited for a core counts as used: on an overloaded machine,
work must not look like idleness. So do both times of children that have ended: a loop of short commands is work, though
none of them is seen twice. Background jobs, idle shells and a forgotten `sleep infinity` are not busy.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from typing import NamedTuple

WINDOW_S = 60.0
BUSY_SHARE = 0.05
Key = tuple[int, int]  # pid and start time: a pid alone may be reused


class Times(NamedTuple):
    cpu_s: float
    waited_s: float  # ready to run, but no core was free


class Proc(NamedTuple):
    """One entry of the process table. `cpu_s` includes the children that it has waited for."""

    pid: int
    start: int
    parent: int
    group: int
    session: int
    tty: int
    foreground_group: int  # of its terminal; -1 without one
    cpu_s: float
    name: str
    waited_s: float = 0.0

    @property
    def key(self) -> Key:
        return (self.pid, self.start)

    @property
    def times(self) -> Times:
        return Times(self.cpu_s, self.waited_s)


_NONE = Times(0.0, 0.0)


class Busy(NamedTuple):
    name: str
    cpu_percent: float


def below(procs: Iterable[Proc], roots: Iterable[int]) -> set[int]:
    """Return the roots and all their descendants that still have their parents."""
    children: dict[int, list[int]] = {}
    for proc in procs:
        children.setdefault(proc.parent, []).append(proc.pid)
    found: set[int] = set()
    pending = list(roots)
    while pending:
        pid = pending.pop()
        if pid not in found:
            found.add(pid)
            pending.extend(children.get(pid, ()))
    return found


def in_terminals(by_pid: Mapping[int, Proc], earlier: Set[Key]) -> set[Key]:
    """Return the processes in the foreground of their terminals: its foreground group, and the shells that wait for it.

    `earlier` is what the last observation found. Between two commands of a loop the group may be empty: the last command
    has ended, and its shell has not gone on yet. Whoever was in the foreground then still is.
    """
    found: set[Key] = set()
    occupied: set[int] = set()  # terminals
    for proc in by_pid.values():
        if not proc.tty or proc.group != proc.foreground_group:
            continue
        occupied.add(proc.tty)
        at: Proc | None = proc
        while at is not None and at.tty == proc.tty and at.key not in found:
            found.add(at.key)
            at = by_pid.get(at.parent)
    found.update(
        proc.key for proc in by_pid.values() if proc.tty and proc.tty not in occupied and proc.key in earlier
    )
    return found


def used(proc: Proc, before: Mapping[Key, Times]) -> float:
    """Return CPU seconds since the window began. A process that started within the window began at zero."""
    return max(0.0, proc.cpu_s - before.get(proc.key, _NONE).cpu_s)


def demanded(proc: Proc, before: Mapping[Key, Times]) -> float:
    """Return the seconds since the window began in which it ran or waited for a core."""
    return used(proc, before) + max(0.0, proc.waited_s - before.get(proc.key, _NONE).waited_s)


def busiest(
    procs: list[Proc],
    before: Mapping[Key, Times],
    roots: Mapping[int, str],
    window_s: float,
    earlier: Set[Key] = frozenset(),
) -> Busy | None:
    """Return the busiest group of processes, if it counts as work. `roots` maps pids of exec and SSH to what they run.

    `before` is what each process had used when the window began, or when it was first seen, and `earlier` is who was in
    the foreground of a terminal in the last observation.
    """
    by_pid = {proc.pid: proc for proc in procs}
    started, foreground = below(procs, roots), in_terminals(by_pid, earlier)
    groups: dict[str, float] = {}
    for proc in procs:
        if proc.key in foreground or (not proc.tty and proc.pid in started):
            name = _name(proc, by_pid, roots)
            groups[name] = groups.get(name, 0.0) + demanded(proc, before)
    if not groups:
        return None
    name = max(groups, key=lambda candidate: (groups[candidate], candidate))
    share = groups[name] / max(window_s, WINDOW_S)
    return Busy(name, round(share * 100, 1)) if share > BUSY_SHARE else None


def _name(proc: Proc, by_pid: Mapping[int, Proc], roots: Mapping[int, str]) -> str:
    """Return what the user typed: the exec's command, or the leader of the terminal's foreground group."""
    if proc.tty:
        leader = by_pid.get(proc.group)
        return leader.name if leader is not None else proc.name
    at: Proc | None = proc
    for _ in range(len(by_pid)):
        if at is None:
            break
        if at.pid in roots:
            return roots[at.pid]
        at = by_pid.get(at.parent)
    return proc.name


class History:
    """The times of each process at each observation, for slightly longer than the window."""

    def __init__(self) -> None:
        self._observations: list[tuple[float, dict[Key, Times]]] = []
        self._last: dict[int, Proc] = {}
        self._inherited_s: dict[Key, float] = {}
        self.foreground: set[Key] = set()  # of terminals, in the last observation

    def add(self, now: float, procs: Iterable[Proc]) -> list[Proc]:
        """Record an observation, and return it with the waiting time of ended children added to their parents'.

        The kernel adds the CPU time of a child to its parent's, but forgets how long the child waited for a core.
        What is added is what the last observation showed: less than the truth, never more.
        """
        by_pid = {proc.pid: proc for proc in procs}
        alive = {proc.key for proc in by_pid.values()}
        for ended in self._last.values():
            if ended.key not in alive:
                self._inherit(ended, alive)
        seen = [
            proc._replace(waited_s=proc.waited_s + self._inherited_s.get(proc.key, 0.0)) for proc in by_pid.values()
        ]
        self._inherited_s = {proc.key: self._inherited_s.get(proc.key, 0.0) for proc in seen}
        self._last = {proc.pid: proc for proc in seen}
        self.foreground = in_terminals(by_pid, self.foreground)
        self._observations.append((now, {proc.key: proc.times for proc in seen}))
        # Keep one observation older than the window: the window begins with it.
        while len(self._observations) > 2 and self._observations[1][0] <= now - WINDOW_S:
            del self._observations[0]
        return seen

    def _inherit(self, ended: Proc, alive: set[Key]) -> None:
        """Give the waiting time of an ended process to its nearest ancestor that is still there."""
        at: Proc | None = ended
        for _ in range(len(self._last)):
            at = self._last.get(at.parent) if at is not None else None
            if at is None:
                return
            if at.key in alive:
                self._inherited_s[at.key] = self._inherited_s.get(at.key, 0.0) + ended.waited_s
                return

    def before(self, now: float) -> tuple[dict[Key, Times], float]:
        """Return what each process had used when the window began, and the window's length.

        Usage before the first observation is unknown and does not count.
        """
        if not self._observations:
            return {}, WINDOW_S
        at, first = self._observations[0]
        known = dict(first)
        return known, max(now - at, WINDOW_S)
