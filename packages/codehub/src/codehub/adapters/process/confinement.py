"""Confines a child between fork and exec: limits, the network namespace, the system call filter.

Also starts slirp4netns, which serves that namespace from outside. Uses only a small part of the standard library, because
it is loaded at every start.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import sys
import time

from codehub.adapters.process import netns

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

PR_SET_PDEATHSIG = 1
SECCOMP_FD = 63  # where bubblewrap finds the filter
_OPEN_FILES = 65_536
# Connections of a workspace at a time. Each takes a port of the machine, which has about 28,000 for all workspaces.
_CONNECTIONS = 4096
_TERMINALS = 256  # pseudo terminals of a workspace
_MS_NOSUID, _MS_NOEXEC = 2, 8
_INTERFACE_TIMEOUT_S = 10.0
_libc = ctypes.CDLL(None, use_errno=True)


class Confinement:
    """The plan of ProcessInstances. Empty strings and lists stand for what this machine does not support.

    A plain class: importing `dataclasses` would take longer than everything else that the supervisor does at a start.
    """

    __slots__ = ("blocked", "bridge_port", "bridge_socket", "cgroups", "pids", "seccomp", "slirp", "terminals")

    def __init__(
        self,
        *,
        cgroups: Sequence[str] = (),
        pids: int = 0,
        seccomp: str = "",
        slirp: str = "",
        blocked: Sequence[str] = (),
        bridge_socket: str = "",
        bridge_port: int = 0,
        terminals: str = "",
    ) -> None:
        self.cgroups = cgroups
        self.pids = pids
        self.seccomp = seccomp
        self.slirp = slirp
        self.blocked = blocked
        self.bridge_socket = bridge_socket
        self.bridge_port = bridge_port
        self.terminals = terminals

    def as_dict(self) -> dict[str, object]:
        return {name: getattr(self, name) for name in self.__slots__}


class Namespaces:
    """Descriptors that keep a child's namespaces open. `user` is set only if the child has its own user namespace."""

    __slots__ = ("network", "user")

    def __init__(self, network: int, user: int | None) -> None:
        self.network = network
        self.user = user


def apply_limits(plan: Confinement, uid: int | None) -> None:
    _join_groups(plan)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _lower(resource.RLIMIT_NOFILE, _OPEN_FILES)
    if uid is not None and plan.pids:  # counted per user, so only if the workspace has its own user
        _lower(resource.RLIMIT_NPROC, plan.pids)
    if plan.seccomp:
        fd = os.open(plan.seccomp, os.O_RDONLY)
        os.dup2(fd, SECCOMP_FD)


def _join_groups(plan: Confinement) -> None:
    for group in plan.cgroups:
        with open(os.path.join(group, "cgroup.procs"), "w") as file:
            file.write("0")


def _lower(kind: int, most: int) -> None:
    hard = resource.getrlimit(kind)[1]
    value = most if hard == resource.RLIM_INFINITY else min(hard, most)
    resource.setrlimit(kind, (value, value))


def mount_terminals(plan: Confinement) -> None:
    """In the child: mount its pseudo terminals where bubblewrap finds them. Nobody else sees this mount.

    The kernel has a few thousand for all users of the machine, and no limit for one user.
    """
    if not plan.terminals:
        return
    netns.hide_mounts()
    options = b"newinstance,ptmxmode=0666,mode=620,max=%d" % _TERMINALS
    if _libc.mount(b"devpts", os.fsencode(plan.terminals), b"devpts", _MS_NOSUID | _MS_NOEXEC, options) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"no pseudo terminals can be mounted: {os.strerror(number)}")


def ran_out_of_memory(plan: Confinement) -> bool:
    """Return whether the kernel killed a process of the group for its memory use."""
    for group in plan.cgroups:
        for name in ("memory.events", "memory.oom_control"):
            try:
                with open(os.path.join(group, name)) as file:
                    lines = file.read().splitlines()
            except OSError:
                continue
            return any(line.startswith("oom_kill ") and line != "oom_kill 0" for line in lines)
    return False


def enter_network(plan: Confinement, uid: int | None, made: int, seen: int) -> None:
    """In the child: enter a new namespace, and wait until the supervisor holds it."""
    netns.enter(plan.blocked, new_user=uid is None)
    os.write(made, b"1")
    os.read(seen, 1)


def hold_namespaces(child: int, made: int, seen: int, *, new_user: bool) -> Namespaces | None:
    """In the supervisor: open the child's namespaces. Returns None if the child ended before it had any."""
    if not os.read(made, 1):
        return None
    network = os.open(f"/proc/{child}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    user = os.open(f"/proc/{child}/ns/user", os.O_RDONLY | os.O_CLOEXEC) if new_user else None
    os.write(seen, b"1")
    return Namespaces(network, user)


def start_way_out(plan: Confinement, held: Namespaces) -> tuple[int, int]:
    """Start slirp4netns and return (pid, pipe). It ends when the pipe is closed, however this process ends.

    The workspace decides how much it has to do, so its CPU time and memory are the workspace's.
    """
    until, ours = os.pipe2(os.O_CLOEXEC)
    pid = os.fork()
    if pid == 0:
        try:
            plain_signals()
            _join_groups(plan)
            _lower(resource.RLIMIT_NOFILE, _CONNECTIONS)
            _make_interface(held)
            for fd in (until, held.network, *([held.user] if held.user is not None else [])):
                os.set_inheritable(fd, True)
            close_standard_streams()
            if held.user is None:
                netns.hide_mounts()
            command = netns.way_out(plan.slirp, held.network, held.user, until)
            os.execve(command[0], command, {"PATH": os.defpath})  # noqa: S606
        finally:
            os._exit(127)
    os.close(until)
    return pid, ours


def _make_interface(held: Namespaces) -> None:
    """Create the interface, in a process of its own: slirp4netns stays in this network."""
    pid = os.fork()
    if pid == 0:
        try:
            join(held)
            netns.make_interface()
            os._exit(0)
        finally:
            os._exit(1)
    if os.waitpid(pid, 0)[1] != 0:
        raise OSError("the interface could not be made")


def try_network() -> int:
    """Entry point of a program: test whether slirp4netns (its argument) can serve a new namespace."""
    plan = Confinement(slirp=sys.argv[1])
    uid = 0 if os.geteuid() == 0 else None
    (made_r, made_w), (seen_r, seen_w) = os.pipe2(os.O_CLOEXEC), os.pipe2(os.O_CLOEXEC)
    child = os.fork()
    if child == 0:
        try:
            os.close(seen_w)
            enter_network(plan, uid, made_w, seen_r)
            os._exit(0 if _has_way_out() else 1)
        except OSError as error:
            print(error.strerror or error, file=sys.stderr, flush=True)
        finally:
            os._exit(1)
    os.close(made_w)
    held = hold_namespaces(child, made_r, seen_w, new_user=uid is None)
    if held is None:
        return 1
    start_way_out(plan, held)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _has_way_out() -> bool:
    deadline = time.monotonic() + _INTERFACE_TIMEOUT_S
    while time.monotonic() < deadline:
        with open("/proc/self/net/route") as file:
            if any(line.split()[:2] == [netns.INTERFACE, "00000000"] for line in file):
                return True
        time.sleep(0.005)
    return False


def join(held: Namespaces) -> None:
    for fd in (held.user, held.network):
        if fd is not None and _libc.setns(fd, 0) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))


def close_standard_streams() -> None:
    """Close the standard streams, because the process that started the supervisor waits for their end."""
    null = os.open("/dev/null", os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(null, standard)


def plain_signals() -> None:
    """Restore the signal state that a program expects at its start, and end it with its supervisor."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    signal.set_wakeup_fd(-1)
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
