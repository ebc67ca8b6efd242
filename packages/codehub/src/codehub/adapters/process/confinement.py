"""What the supervisor does to a child between fork and exec: limits, the network namespace, the system call filter.

And what serves that namespace from outside: slirp4netns as its way out, and a bridge from a Unix socket to an IDE that can
only listen on a port. The standard library alone, as the supervisor.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

from codehub.adapters.process import netns

PR_SET_PDEATHSIG = 1
SECCOMP_FD = 63  # where bubblewrap is told to find the filter
_OPEN_FILES = 65_536
_INTERFACE_TIMEOUT_S = 10.0
_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True, slots=True)
class Confinement:
    """As ProcessInstances decided it; empty strings and lists for what this machine cannot do."""

    cgroups: Sequence[str]
    pids: int
    seccomp: str
    slirp: str
    blocked: Sequence[str]
    bridge_socket: str
    bridge_port: int


@dataclass(frozen=True, slots=True)
class Namespaces:
    """Descriptors that keep a child's namespaces open; `user` only where it has one of its own."""

    network: int
    user: int | None


def apply_limits(plan: Confinement, uid: int | None) -> None:
    for group in plan.cgroups:
        with open(os.path.join(group, "cgroup.procs"), "w") as file:
            file.write("0")
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _lower(resource.RLIMIT_NOFILE, _OPEN_FILES)
    if uid is not None and plan.pids:  # counted by user: only where the user is the workspace's own
        _lower(resource.RLIMIT_NPROC, plan.pids)
    if plan.seccomp:
        fd = os.open(plan.seccomp, os.O_RDONLY)
        os.dup2(fd, SECCOMP_FD)


def _lower(kind: int, most: int) -> None:
    hard = resource.getrlimit(kind)[1]
    value = most if hard == resource.RLIM_INFINITY else min(hard, most)
    resource.setrlimit(kind, (value, value))


def enter_network(plan: Confinement, uid: int | None, made: int, seen: int) -> None:
    """In the child: a namespace of its own, and no further before the supervisor holds it."""
    netns.enter(plan.blocked, new_user=uid is None)
    os.write(made, b"1")
    os.read(seen, 1)


def hold_namespaces(child: int, made: int, seen: int, *, new_user: bool) -> Namespaces | None:
    """In the supervisor: the child's namespaces, open; None when the child ended before it had any."""
    if not os.read(made, 1):
        return None
    network = os.open(f"/proc/{child}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    user = os.open(f"/proc/{child}/ns/user", os.O_RDONLY | os.O_CLOEXEC) if new_user else None
    os.write(seen, b"1")
    return Namespaces(network, user)


def start_way_out(plan: Confinement, held: Namespaces) -> tuple[int, int]:
    """(pid, pipe): slirp4netns ends when the pipe is closed, however we end."""
    until, ours = os.pipe2(os.O_CLOEXEC)
    pid = os.fork()
    if pid == 0:
        try:
            _plain_signals()
            for fd in (until, held.network, *([held.user] if held.user is not None else [])):
                os.set_inheritable(fd, True)
            null = os.open("/dev/null", os.O_RDWR)
            for standard in (0, 1, 2):
                os.dup2(null, standard)
            command = netns.way_out(plan.slirp, held.network, held.user, until)
            os.execve(command[0], command, {"PATH": os.defpath})  # noqa: S606
        finally:
            os._exit(127)
    os.close(until)
    return pid, ours


def try_network() -> int:
    """A program: whether slirp4netns (its argument) can serve a namespace that we make."""
    plan = Confinement((), 0, "", sys.argv[1], (), "", 0)
    uid = 0 if os.geteuid() == 0 else None
    (made_r, made_w), (seen_r, seen_w) = os.pipe2(os.O_CLOEXEC), os.pipe2(os.O_CLOEXEC)
    child = os.fork()
    if child == 0:
        try:
            os.close(seen_w)
            enter_network(plan, uid, made_w, seen_r)
            os._exit(0 if _has_interface("tap0") else 1)
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


def _has_interface(name: str) -> bool:
    deadline = time.monotonic() + _INTERFACE_TIMEOUT_S
    while time.monotonic() < deadline:
        with open("/proc/self/net/dev") as file:
            if f"{name}:" in file.read():
                return True
        time.sleep(0.005)
    return False


def start_bridge(plan: Confinement, held: Namespaces, uid: int | None) -> int:
    """A process in the namespace, as the workspace's user, between its Unix socket outside and its port inside."""
    pid = os.fork()
    if pid == 0:
        try:
            _plain_signals()
            with socket.socket(socket.AF_UNIX) as listener:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(plan.bridge_socket)
                listener.bind(plan.bridge_socket)
                if uid is not None:
                    os.chown(plan.bridge_socket, uid, -1, follow_symlinks=False)
                for fd in (held.user, held.network):
                    if fd is not None and _libc.setns(fd, 0) != 0:
                        os._exit(126)
                if uid is not None:
                    os.setgroups([])
                    os.setresgid(uid, uid, uid)
                    os.setresuid(uid, uid, uid)
                _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
                # After the change of user: whoever connects is shown the listener's.
                listener.listen(512)
                _serve(listener, plan.bridge_port)
        finally:
            os._exit(127)
    return pid


def _plain_signals() -> None:
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    signal.set_wakeup_fd(-1)
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def _serve(listener: socket.socket, port: int) -> None:
    while True:
        client, _ = listener.accept()
        threading.Thread(target=_carry, args=(client, port), daemon=True).start()


def _carry(client: socket.socket, port: int) -> None:
    with client, contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 5) as server:
        server.settimeout(None)
        ends = {client: server, server: client}
        while ends:
            for source in select.select(list(ends), [], [])[0]:
                data = source.recv(65_536)
                if data:
                    ends[source].sendall(data)
                else:
                    ends.pop(source).shutdown(socket.SHUT_WR)
