"""The parent of one started process: waits for it and records how it ended.

Forked from `workspaced` into its own session, so that the process, its output and its exit code survive a crash of
`workspaced`. For a terminal, it also keeps the master side of the pty and passes it to any `workspaced` that requests it.
Nothing here may touch the event loop of the process that it was forked from.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import resource
import select
import signal
import socket
import struct
import sys
import termios
from collections.abc import Iterator, Sequence
from typing import NamedTuple, NoReturn

_FIRST_FREE_FD = 3
_EXIT = "exit.new"  # until the process has ended
_EXIT_ROOM = 64
_holders: set[int] = set()  # children of this process that were not reaped yet


class Launch(NamedTuple):
    """What to run. `out` and `err` are files; with `tty`, the pty's slave side is used instead."""

    folder: str
    command: Sequence[str]
    cwd: str
    env: dict[str, str]
    stdin: str | None = None
    merged: bool = False
    tty: bool = False
    cols: int = 80
    rows: int = 24


class Started(NamedTuple):
    pid: int
    start: int
    holder: int


def start_ticks(pid: int) -> int:
    """Return a process's start time in ticks since boot, which identifies it together with the pid. 0 if it is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return int(file.read().rpartition(b") ")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return 0


def start(launch: Launch, master: int = -1, slave: int = -1) -> Started:
    """Fork the holder, which runs the command. Raises OSError if the command could not be executed."""
    report_r, report_w = os.pipe()
    listener = _listener(launch.folder) if launch.tty else None
    holder = os.fork()
    if holder == 0:
        try:
            os.setsid()
            _hold(launch, report_w, master, slave, listener)
        except BaseException as error:  # noqa: BLE001 - in a forked child: no exception may escape
            _report(report_w, errno.EIO, str(error))
        finally:
            os._exit(1)
    os.close(report_w)
    _holders.add(holder)
    if listener is not None:
        listener.close()
    with open(report_r, "rb") as pipe:
        answer = json.loads(pipe.read() or b"{}")
    if "pid" not in answer:
        raise OSError(answer.get("errno", errno.EIO), answer.get("error", "the process could not be started"))
    return Started(answer["pid"], start_ticks(answer["pid"]), holder)


def reserve_exit(folder: str) -> None:
    """Take the space of the exit code before the command can use up the disk. Raises OSError if there is none."""
    _write_exit(folder, "")


def _write_exit(folder: str, text: str) -> None:
    with open(os.open(os.path.join(folder, _EXIT), os.O_WRONLY | os.O_CREAT, 0o600), "w") as file:
        file.write(text.ljust(_EXIT_ROOM))


def reap() -> None:
    """Reap holders that have ended."""
    for pid in list(_holders):
        try:
            ended = os.waitpid(pid, os.WNOHANG)[0] != 0
        except ChildProcessError:
            ended = True
        if ended:
            _holders.discard(pid)


def _listener(folder: str) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    with _short(folder) as path:
        listener.bind(path)
    listener.listen(4)
    return listener


@contextlib.contextmanager
def _short(folder: str) -> Iterator[str]:
    """Return the socket's path through a descriptor, because a socket's address is limited to 108 bytes."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{fd}/pty"
    finally:
        os.close(fd)


def take_master(folder: str) -> int:
    """Return the pty of a terminal that an earlier `workspaced` started."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client, _short(folder) as path:
        client.settimeout(5.0)
        client.connect(path)
        _, fds, _, _ = socket.recv_fds(client, 1, 1)
    if not fds:
        raise OSError(errno.EPIPE, "the terminal's holder gave nothing")
    return fds[0]


def _report(fd: int, number: int, text: str) -> None:
    with contextlib.suppress(OSError):
        os.write(fd, json.dumps({"errno": number, "error": text}).encode())


def _hold(launch: Launch, report_w: int, master: int, slave: int, listener: socket.socket | None) -> NoReturn:
    stopping = False

    def note_stop(number: int, frame: object) -> None:
        nonlocal stopping
        stopping = True

    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGTERM, note_stop)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    kept = sorted(fd for fd in (report_w, master, slave, listener.fileno() if listener else -1) if fd >= 0)
    _close_others(kept)
    null = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(null, standard)
    exec_r, exec_w = os.pipe()
    os.set_inheritable(exec_w, False)
    child = os.fork()
    if child == 0:
        try:
            _become(launch, slave)
        except OSError as error:
            _report(exec_w, error.errno or errno.EIO, f"{launch.command[0]}: {error.strerror}")
        except BaseException as error:  # noqa: BLE001 - see above
            _report(exec_w, errno.EIO, str(error))
        finally:
            os._exit(127)
    os.close(exec_w)
    if slave >= 0:
        os.close(slave)
    failed = os.read(exec_r, 65536)
    os.close(exec_r)
    os.write(report_w, failed or json.dumps({"pid": child}).encode())
    os.close(report_w)
    status = _wait(child, listener, master)
    # A workspace that is stopped signals its processes, parents first. A command that ends by that has no exit code of its
    # own, so none is recorded: its caller sees the connection end, on every runtime.
    if not (stopping and os.WIFSIGNALED(status)):
        code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status)
        _write_exit(launch.folder, json.dumps({"exit_code": code}))
        os.rename(os.path.join(launch.folder, _EXIT), os.path.join(launch.folder, "exit"))
    with contextlib.suppress(OSError):
        os.unlink(os.path.join(launch.folder, "pty"))
    os._exit(0)


def _wait(child: int, listener: socket.socket | None, master: int) -> int:
    if listener is None:
        return os.waitpid(child, 0)[1]
    wake_r, wake_w = os.pipe2(os.O_NONBLOCK)
    signal.set_wakeup_fd(wake_w, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    while True:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return status
        ready, _, _ = select.select([wake_r, listener.fileno()], [], [])
        if wake_r in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(wake_r, 4096)
        if listener.fileno() in ready:
            with contextlib.suppress(OSError):
                client, _ = listener.accept()
                with client:
                    socket.send_fds(client, [b"m"], [master])


def _become(launch: Launch, slave: int) -> None:
    os.setsid()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGPIPE, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    signal.set_wakeup_fd(-1)
    if launch.tty:
        fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", launch.rows, launch.cols, 0, 0))
        for standard in (0, 1, 2):
            os.dup2(slave, standard)
    else:
        _redirect(launch)
    try:
        os.chdir(launch.cwd)
    except OSError as error:
        raise OSError(error.errno, f"the folder {launch.cwd} cannot be entered: {error.strerror}") from error
    os.umask(0o022)
    os.execvpe(launch.command[0], list(launch.command), launch.env)  # noqa: S606


def _redirect(launch: Launch) -> None:
    source = os.path.join(launch.folder, "stdin") if launch.stdin is not None else os.devnull
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    out = os.open(os.path.join(launch.folder, "stdout"), flags, 0o600)
    err = out if launch.merged else os.open(os.path.join(launch.folder, "stderr"), flags, 0o600)
    for fd, standard in ((os.open(source, os.O_RDONLY), 0), (out, 1), (err, 2)):
        os.dup2(fd, standard)


def _close_others(kept: list[int]) -> None:
    """Close all other descriptors. None of `workspaced`'s may stay open in a user's program."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    try:
        highest = max(int(name) for name in os.listdir("/proc/self/fd")) + 1
    except OSError:
        highest = 65536 if limit == resource.RLIM_INFINITY else limit
    begin = _FIRST_FREE_FD
    for fd in [*kept, highest]:
        if fd >= begin:
            os.closerange(begin, fd)
            begin = fd + 1


def shell() -> str:
    """Return the user's shell: $SHELL if it exists, else bash or sh."""
    for candidate in (os.environ.get("SHELL", ""), "/bin/bash", "/bin/sh"):
        if candidate and os.access(candidate, os.X_OK):
            return candidate
    return sys.executable
