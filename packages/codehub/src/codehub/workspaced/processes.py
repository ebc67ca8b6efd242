"""Processes started by exec or as long-running ones: started once, found by id, with their output in files.

A process's folder contains all its data: `spec.json`, `stdout`, `stderr`, `exit` (written by its holder). A restarted
`workspaced` reads them and continues.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import secrets
import shutil
import signal
import time
from collections.abc import AsyncIterator, Sequence
from typing import Callable, NamedTuple

from . import holder
from .errors import conflict, invalid, not_found
from .http1 import readable

_KEPT_FINISHED = 100  # number of finished processes to keep, with their output
_KEPT_BYTES = 512 << 20
HEAD_BYTES = 64 << 10
TAIL_BYTES = 64 << 10
_POLL_FIRST_S, _POLL_LONGEST_S = 0.01, 0.2
_KILL_AFTER_S = 2.0
_READ = 256 << 10
_SPEC_ROOM = 64
_ID = re.compile(r"[0-9a-f]{16}$")


class Process(NamedTuple):
    id: str
    kind: str  # "exec" or "process"
    command: list[str]
    started_at: float
    pid: int
    start: int
    folder: str

    @property
    def alive(self) -> bool:
        return self.start != 0 and holder.start_ticks(self.pid) == self.start and not _is_zombie(self.pid)

    @property
    def exit_code(self) -> int | None:
        try:
            with open(os.path.join(self.folder, "exit")) as file:
                return int(json.load(file)["exit_code"])
        except (OSError, ValueError, KeyError):
            return None

    @property
    def state(self) -> str:
        if self.exit_code is not None:
            return "exited"
        # Its holder was killed too, or the workspace went to sleep: its exit status is unknown.
        return "running" if self.alive else "lost"

    def log_path(self, stream: str) -> str:
        return os.path.join(self.folder, stream)


def _is_zombie(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b") ")[2][:1] in (b"Z", b"X")
    except OSError:
        return True


def bounded(path: str, log: str) -> tuple[str, bool]:
    """Return the head and tail of a file's text, with a line between them that names the complete file."""
    try:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            head = file.read(HEAD_BYTES)
            if size <= HEAD_BYTES + TAIL_BYTES:
                return (head + file.read(TAIL_BYTES)).decode("utf-8", "replace"), False
            file.seek(size - TAIL_BYTES)
            tail = file.read(TAIL_BYTES)
    except FileNotFoundError:
        return "", False
    left_out = size - len(head) - len(tail)
    between = f"\n[... {left_out} bytes left out; the full output is in {log} ...]\n"
    return head.decode("utf-8", "replace") + between + tail.decode("utf-8", "replace"), True


class Processes:
    def __init__(self, root: str, home: str, env: dict[str, str], clock: Callable[[], float] = time.time) -> None:
        self._root = root
        self._home = home
        self.env = env  # of programs that start later; others change it
        self._clock = clock
        os.makedirs(root, mode=0o700, exist_ok=True)
        self._known: dict[str, Process] = {}
        for name in os.listdir(root):
            if _ID.match(name):
                process = _read(os.path.join(root, name))
                if process is None:
                    shutil.rmtree(os.path.join(root, name), ignore_errors=True)
                else:
                    self._known[name] = process

    @property
    def path(self) -> str:
        """Return the search path for programs."""
        return self.env.get("PATH", os.defpath)

    def start(
        self,
        kind: str,
        command: Sequence[str],
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        stdin: str | None = None,
    ) -> Process:
        self._forget_old()
        id_ = secrets.token_hex(8)
        folder = os.path.join(self._root, id_)
        os.mkdir(folder, 0o700)
        try:
            if stdin is not None:
                with open(os.open(os.path.join(folder, "stdin"), os.O_WRONLY | os.O_CREAT, 0o600), "wb") as file:
                    file.write(stdin.encode("utf-8", "surrogateescape"))
            # Their space is taken before the command runs: afterwards the home may be full, perhaps by the command itself.
            _write(Process(id_, kind, list(command), self._clock(), 0, 0, folder))
            holder.reserve_exit(folder)
            where = os.path.join(self._home, cwd) if cwd else self._home
            launch = holder.Launch(
                folder, command, where, {**self.env, **(env or {})}, stdin=stdin, merged=kind == "process"
            )
            started = holder.start(launch)
            if stdin is not None:
                # The process has it open. It may be a secret, and homes are archived.
                os.unlink(os.path.join(folder, "stdin"))
            process = Process(id_, kind, list(command), self._clock(), started.pid, started.start, folder)
            _write(process)
        except OSError as error:
            shutil.rmtree(folder, ignore_errors=True)
            raise invalid(f"the command could not be started: {error.strerror or error}") from error
        self._known[id_] = process
        return process

    def get(self, id_: str) -> Process:
        process = self._known.get(id_)
        if process is None:
            raise not_found(f"there is no process {id_}")
        return process

    def all(self) -> list[Process]:
        return sorted(self._known.values(), key=lambda process: process.started_at)

    def running(self) -> list[Process]:
        return [process for process in self._known.values() if process.state == "running"]

    def signal(self, process: Process, name: str) -> None:
        """Send a signal to the process group, like Ctrl-C in a terminal."""
        number = getattr(signal, name if name.startswith("SIG") else f"SIG{name}", None)
        if not isinstance(number, signal.Signals):
            raise invalid(f"there is no signal {name!r}; try TERM, KILL, INT, HUP")
        if not process.alive:
            raise conflict(f"the process {process.id} has ended")
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)

    async def wait(self, process: Process) -> int | None:
        """Return the exit code, or None if the process was lost."""
        try:
            fd = os.pidfd_open(process.pid)
        except ProcessLookupError:
            fd = -1
        except OSError:
            fd = -2
        if fd >= 0:
            try:
                if holder.start_ticks(process.pid) == process.start:
                    await readable(fd)
            finally:
                os.close(fd)
        while fd == -2 and process.alive:  # noqa: ASYNC110 - a kernel without pidfd has no event for it
            await asyncio.sleep(_POLL_LONGEST_S)
        # The holder writes the exit code shortly afterwards, unless it was killed.
        for _ in range(200):
            code = process.exit_code
            if code is not None:
                return code
            await asyncio.sleep(0.001 if _ < 50 else 0.02)
        return process.exit_code

    async def end(self, process: Process, kill_after_s: float = _KILL_AFTER_S) -> None:
        """Send TERM to the group, then KILL."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGTERM)
        try:
            await asyncio.wait_for(self.wait(process), kill_after_s)
        except asyncio.TimeoutError:
            pass
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)

    async def output(self, process: Process, stream: str, after: int, follow: bool) -> AsyncIterator[bytes]:
        """Yield output from an offset, with `follow` until the process has ended. Offsets are positions in the file."""
        pause = _POLL_FIRST_S
        position = after
        while True:
            ended = process.state != "running"
            data = _pread(process.log_path(stream), position)
            if data:
                position += len(data)
                pause = _POLL_FIRST_S
                yield data
                continue
            if ended or not follow:
                return
            await asyncio.sleep(pause)
            pause = min(pause * 1.5, _POLL_LONGEST_S)

    def _forget_old(self) -> None:
        """Remove the oldest finished processes if there are too many or their output is too large."""
        finished = [process for process in reversed(self.all()) if process.state != "running"]
        total = 0
        for number, process in enumerate(finished):
            total += sum(_size(process.log_path(stream)) for stream in ("stdout", "stderr"))
            if number >= _KEPT_FINISHED or (total > _KEPT_BYTES and number > 0):
                del self._known[process.id]
                shutil.rmtree(process.folder, ignore_errors=True)


def _pread(path: str, position: int) -> bytes:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return b""
    try:
        return os.pread(fd, _READ, position)
    finally:
        os.close(fd)


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


def _write(process: Process) -> None:
    """Write the spec, with room for larger numbers, so that writing it again in place needs no more space."""
    text = json.dumps({**process._asdict(), "boot": boot_id()}).encode()
    fd = os.open(os.path.join(process.folder, "spec.json"), os.O_WRONLY | os.O_CREAT, 0o600)
    with open(fd, "wb") as file:
        file.write(text.ljust(os.fstat(fd).st_size or len(text) + _SPEC_ROOM))


def _read(folder: str) -> Process | None:
    try:
        with open(os.path.join(folder, "spec.json")) as file:
            raw = json.load(file)
        # After another boot or another start of this workspace, the pid may belong to another process.
        start = int(raw["start"]) if raw["boot"] == boot_id() else 0
        return Process(
            str(raw["id"]), str(raw["kind"]), [str(word) for word in raw["command"]], float(raw["started_at"]),
            int(raw["pid"]), start, folder,
        )  # fmt: skip
    except (OSError, ValueError, KeyError, TypeError):
        return None


def boot_id() -> str:
    """Return an id of this boot and this pid namespace: in another one, a pid means another process."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return f"{file.read().strip()}/{os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return ""
