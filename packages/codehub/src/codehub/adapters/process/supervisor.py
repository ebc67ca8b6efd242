"""The supervisor of one instance: starts it, collects its output, ends its whole tree, and records how it ended.

A separate program that uses only the standard library (`python -I -S`, the spec on stdin), so that it is small and survives
CodeHub. It holds a lock for its lifetime: a workspace has at most one supervisor. Orphans of the IDE become its children
(subreaper), so that none survives. It keeps CodeHub's uid; the IDE gets another.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import os
import select
import signal
import sys
import time

from codehub.adapters.process import confinement
from codehub.adapters.process.confinement import PR_SET_PDEATHSIG, Confinement, Namespaces

PR_SET_CHILD_SUBREAPER = 36
_ORPHANS_GRACE_S = 2.0  # for processes that are left when the IDE has exited
_READS_AT_ONCE = 16  # of 64 KB: then other events are looked at
_HELPER_RETRY_S = 1.0  # between two starts of slirp4netns or the bridge
_libc = ctypes.CDLL(None, use_errno=True)


def start_ticks(pid: int) -> int:
    """Return a process's start time in ticks since boot, which identifies it together with the pid."""
    with open(f"/proc/{pid}/stat", "rb") as file:
        return int(file.read().rpartition(b") ")[2].split()[19])


def descendants(root: int) -> list[tuple[int, str]]:
    """Return (pid, name) of all descendants of a process, each after its parent."""
    children: dict[int, list[tuple[int, str]]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/stat", "rb") as file:
                    head, _, rest = file.read().rpartition(b") ")
            except OSError:
                continue
            name = head.partition(b"(")[2].decode("utf-8", "replace")
            fields = rest.split()
            if fields[0] != b"Z":
                children.setdefault(int(fields[1]), []).append((int(entry), name))
    found: list[tuple[int, str]] = []
    pending = [root]
    while pending:
        below = children.get(pending.pop(), [])
        found.extend(below)
        pending.extend(pid for pid, _ in below)
    return found


def write_whole(path: str, content: dict[str, object]) -> None:
    fd = os.open(path + ".new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o640)
    with open(fd, "w") as file:
        json.dump(content, file)
    os.rename(path + ".new", path)


class Log:
    """The output, in a file that is rotated when it is large enough."""

    def __init__(self, path: str, most: int) -> None:
        self._path = path
        self._most = most
        self._open()

    def _open(self) -> None:
        self._fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o640)
        self._size = os.fstat(self._fd).st_size

    def write(self, data: bytes) -> None:
        with contextlib.suppress(OSError):  # a full disk must not end the IDE
            self._size += os.write(self._fd, data)
            if self._size >= self._most:
                os.rename(self._path, self._path + ".1")
                os.close(self._fd)
                self._open()


class Supervisor:
    def __init__(self, spec: dict[str, object]) -> None:
        self.spec = spec
        self.run_dir = str(spec["run_dir"])
        self.grace_s = float(str(spec["grace_s"]))
        self.log = Log(os.path.join(self.run_dir, "output.log"), int(str(spec["log_bytes"])))
        self.stop_requested = False
        self.child = 0
        self.plan = Confinement(**spec["confinement"])  # type: ignore[arg-type]
        self.uid = None if spec["uid"] is None else int(str(spec["uid"]))
        self.held: Namespaces | None = None
        self.way_out = self.bridge = 0
        self.way_out_pipe = -1
        self.next_helper_at = 0.0
        self.exit: dict[str, object] | None = None
        self.wake_r, self.wake_w = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(self.wake_w, warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD):
            signal.signal(number, self._noted)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    def _noted(self, number: int, frame: object) -> None:
        if number != signal.SIGCHLD:
            self.stop_requested = True

    def start(self) -> None:
        self.out_r, out_w = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self.out_r, False)
        made_r, made_w = os.pipe2(os.O_CLOEXEC)
        seen_r, seen_w = os.pipe2(os.O_CLOEXEC)
        self.child = os.fork()
        if self.child == 0:
            try:
                os.close(seen_w)
                self._become(out_w, made_w, seen_r)
            except BaseException as error:  # noqa: BLE001 - in a forked child: no exception may escape
                os.write(2, f"cannot start {self.spec['command']!r}: {error}\n".encode())
            os._exit(127)
        os.close(made_w)
        os.close(seen_r)
        if self.plan.slirp:
            self.held = confinement.hold_namespaces(self.child, made_r, seen_w, new_user=self.uid is None)
        os.close(made_r)
        os.close(seen_w)
        os.close(out_w)
        self._keep_helpers()

    def _keep_helpers(self) -> float | None:
        """Start the namespace's helpers, again if they ended. Returns when to check again."""
        if self.held is None or self.stop_requested or self.exit is not None:
            return None
        now = time.monotonic()
        needs_bridge = bool(self.plan.bridge_socket)
        if self.way_out and (self.bridge or not needs_bridge):
            return None
        if now < self.next_helper_at:
            return self.next_helper_at - now
        self.next_helper_at = now + _HELPER_RETRY_S
        if not self.way_out:
            if self.way_out_pipe >= 0:
                os.close(self.way_out_pipe)
            self.way_out, self.way_out_pipe = confinement.start_way_out(self.plan, self.held)
        if needs_bridge and not self.bridge:
            from codehub.adapters.process.port_bridge import start_bridge  # rarely needed, and it imports threading

            self.bridge = start_bridge(self.plan, self.held, self.uid)
        return None

    def _become(self, out_w: int, made_w: int, seen_r: int) -> None:
        os.setsid()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        signal.set_wakeup_fd(-1)
        null = os.open("/dev/null", os.O_RDONLY)
        os.dup2(null, 0)
        os.dup2(out_w, 1)
        os.dup2(out_w, 2)
        # The workspace has its own group, and CodeHub's group must be able to write to the sockets that it creates.
        os.umask(0o022 if self.uid is None else 0o002)
        confinement.apply_limits(self.plan, self.uid)
        if self.plan.slirp:
            confinement.enter_network(self.plan, self.uid, made_w, seen_r)
        confinement.mount_terminals(self.plan)
        command = [str(part) for part in self.spec["command"]]  # type: ignore[attr-defined]
        env = {str(k): str(v) for k, v in self.spec["env"].items()}  # type: ignore[attr-defined]
        uid = self.uid
        if uid is not None and not self.spec["sandboxed"]:
            os.setgroups([])
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
        # After the change of uid, which resets it: the IDE ends with its supervisor.
        _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        os.chdir(str(self.spec["cwd"]) if not self.spec["sandboxed"] else "/")
        os.execve(command[0], command, env)  # noqa: S606

    def run(self) -> None:
        stop_at: float | None = None
        while self.exit is None:
            if self.stop_requested and stop_at is None:
                self._signal_all(signal.SIGTERM)
                stop_at = time.monotonic() + self.grace_s
            if stop_at is not None and time.monotonic() >= stop_at:
                self._signal_all(signal.SIGKILL)
                stop_at = time.monotonic() + 1.0
            again_s = self._keep_helpers()
            self._wait(again_s if stop_at is None else max(0.0, stop_at - time.monotonic()))
        self._end_orphans()
        self._drain()
        self.exit["requested"] = self.stop_requested
        write_whole(os.path.join(self.run_dir, "exit.json"), self.exit)

    def _wait(self, timeout_s: float | None) -> None:
        readable, _, _ = select.select([self.out_r, self.wake_r], [], [], timeout_s)
        if self.wake_r in readable:
            with contextlib.suppress(BlockingIOError):
                os.read(self.wake_r, 4096)
        if self.out_r in readable and not self._drain():
            # All writers closed it; the exit is reported by SIGCHLD.
            os.close(self.out_r)
            self.out_r = self.wake_r
        self._reap()

    def _drain(self) -> bool:
        """Take what was written, up to a bound: one that writes faster than this reads must not keep it from stopping."""
        for _ in range(_READS_AT_ONCE):
            if self.out_r == self.wake_r:
                break
            try:
                data = os.read(self.out_r, 65_536)
            except BlockingIOError:
                return True
            if not data:
                return False
            self.log.write(data)
        return True

    def _reap(self) -> None:
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return
                if pid == self.way_out:
                    self.way_out = 0
                if pid == self.bridge:
                    self.bridge = 0
                if pid == self.child:
                    code = os.waitstatus_to_exitcode(status)
                    # bubblewrap reports a signal as 128 + n, like shells.
                    number = -code if code < 0 else code - 128 if self.spec["sandboxed"] and 128 < code < 160 else 0
                    self.exit = {"code": code if code >= 0 else 128 - code, "signal": number}
                    self.exit["oom"] = number == signal.SIGKILL and confinement.ran_out_of_memory(self.plan)

    def _signal_all(self, number: int) -> None:
        for pid, name in descendants(os.getpid()):
            # bubblewrap does not stop gracefully: it would end its sandbox at once.
            if name != "bwrap" or number == signal.SIGKILL:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, number)

    def _end_orphans(self) -> None:
        number: int = signal.SIGTERM
        give_up = time.monotonic() + _ORPHANS_GRACE_S
        while descendants(os.getpid()):
            self._signal_all(number)
            if time.monotonic() >= give_up:
                number = signal.SIGKILL
            self._wait(0.05)


def main() -> int:
    spec = json.loads(sys.stdin.buffer.read())
    lock = os.open(os.path.join(spec["run_dir"], "lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        print("another supervisor holds this workspace", file=sys.stderr)
        return 75
    ready_r, ready_w = os.pipe()
    if os.fork():
        # The launcher: reports whether the supervisor has started, and leaves it to the system.
        os.close(ready_w)
        return 0 if os.read(ready_r, 1) else 1
    os.close(ready_r)
    os.setsid()
    _libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    supervisor = Supervisor(spec)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(os.path.join(spec["run_dir"], "exit.json"))
    record = {**spec["record"], "pid": os.getpid(), "start": start_ticks(os.getpid())}
    # Recorded before the start: a crash of CodeHub at this point must not leave an unknown instance.
    write_whole(os.path.join(spec["run_dir"], "record.json"), record)
    supervisor.start()
    os.write(ready_w, b"1")
    os.close(ready_w)
    null = os.open("/dev/null", os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(null, standard)
    supervisor.run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
