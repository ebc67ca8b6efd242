"""Terminals that survive a closed tab: a pty, a model of its screen, the last bytes by number, any number of viewers.

A viewer gets the screen first and then every byte. Its acknowledgements pace the pty, so that heavy output is neither lost
nor fills a buffer. A viewer that stops acknowledging is left behind, and gets the screen again when it resumes.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import pty
import re
import secrets
import shutil
import signal
import struct
import termios
import time
from collections.abc import Sequence
from typing import Callable

from . import holder
from .errors import RequestError, invalid, not_found
from .http1 import Connection
from .lazy_model import LazyModel
from .processes import Process, boot_id

WINDOW = 256 << 10  # bytes that a viewer may lag behind: a key's echo waits for these during heavy output
_RING = 1 << 20
_LOG_BYTES = 2 << 20  # kept on disk for a restarted workspaced
_READ = 64 << 10
_STALLED_S = 2.0
_MOST_TERMINALS = 64
_MOST_INPUT = 1 << 20
_LAST_KEYS_S = 5.0
_ID = re.compile(r"[0-9a-f]{16}$")
SCREEN, OUTPUT, INPUT, ACK, RESIZE, EXIT = b"S", b"O", b"I", b"A", b"R", b"X"


def check_size(cols: object, rows: object) -> tuple[int, int]:
    if isinstance(cols, int) and isinstance(rows, int) and 1 <= cols <= 1000 and 1 <= rows <= 1000:
        return int(cols), int(rows)
    raise invalid("cols and rows are 1 to 1000")


class Viewer:
    def __init__(self, at: int) -> None:
        self.sent = at
        self.acked = at
        self.acked_at = time.monotonic()
        self.wants_screen = False
        self.resized: bytes | None = None

    def stalled(self, total: int, now: float) -> bool:
        return total - self.acked >= WINDOW and now - self.acked_at > _STALLED_S


class Terminal:
    def __init__(self, process: Process, master: int, cols: int, rows: int, gone: Callable[[Terminal], None]) -> None:
        self.process = process
        self.id = process.id
        self.cols, self.rows = cols, rows
        self._master = master
        self._gone = gone
        self._model = LazyModel(cols, rows, self.pace)
        self._ring = bytearray()
        self._base = 0
        self._viewers: set[Viewer] = set()
        self._changed = asyncio.Event()
        self._reading = False
        self._typed = bytearray()
        self.closed = False
        self.used_at = time.time()
        self._log = os.path.join(process.folder, "log")
        self._log_size = 0
        os.set_blocking(master, False)

    @property
    def total(self) -> int:
        """Return the number of the next byte."""
        return self._base + len(self._ring)

    @property
    def viewers(self) -> int:
        return len(self._viewers)

    def begin(self) -> None:
        """Load what an earlier `workspaced` recorded, and continue reading."""
        for name in (self._log + ".1", self._log):
            with contextlib.suppress(FileNotFoundError), open(name, "rb") as file:
                data = file.read()
                self._log_size = len(data) if name == self._log else 0
                self._keep(data)
        self.pace()

    def pace(self) -> None:
        """Read the pty only while the model and every viewer that keeps up have room."""
        now = time.monotonic()
        behind = [v for v in self._viewers if self.total - v.acked >= WINDOW and not v.stalled(self.total, now)]
        wanted = not self.closed and not behind and not self._model.full
        if wanted == self._reading:
            return
        loop = asyncio.get_running_loop()
        if wanted:
            loop.add_reader(self._master, self._read)
        else:
            loop.remove_reader(self._master)
            if behind:
                loop.call_later(_STALLED_S + 0.1, self.pace)
        self._reading = wanted

    def _read(self) -> None:
        try:
            data = os.read(self._master, _READ)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.close()
            return
        self._write_log(data)
        self._keep(data)
        self.used_at = time.time()
        self._wake()
        self.pace()

    def _keep(self, data: bytes) -> None:
        self._ring += data
        if len(self._ring) > 2 * _RING:
            cut = len(self._ring) - _RING
            del self._ring[:cut]
            self._base += cut
        self._model.add(data)

    def _write_log(self, data: bytes) -> None:
        with contextlib.suppress(OSError):  # a full disk must not end the terminal
            fd = os.open(self._log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            try:
                os.write(fd, data)
            finally:
                os.close(fd)
            self._log_size += len(data)
            if self._log_size > _LOG_BYTES:
                os.rename(self._log, self._log + ".1")
                self._log_size = 0

    def type(self, data: bytes) -> None:
        """Send keystrokes. Input that the program does not read yet is buffered, up to a limit."""
        if len(self._typed) + len(data) > _MOST_INPUT:
            raise RequestError(413, "PAYLOAD_TOO_LARGE", "the program does not read its input")
        self._typed += data
        self.used_at = time.time()
        self._flush_typed()

    def _flush_typed(self) -> None:
        loop = asyncio.get_running_loop()
        while self._typed and not self.closed:
            try:
                done = os.write(self._master, self._typed[:4096])
            except BlockingIOError:
                loop.add_writer(self._master, self._flush_typed)
                return
            except OSError:
                break
            del self._typed[:done]
        if not self.closed:
            loop.remove_writer(self._master)

    def resize(self, cols: int, rows: int) -> None:
        if (cols, rows) == (self.cols, self.rows):
            return
        self.cols, self.rows = cols, rows
        self._model.resize(cols, rows)
        with contextlib.suppress(OSError):
            fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))
        size = json.dumps({"cols": cols, "rows": rows}).encode()
        for viewer in self._viewers:
            viewer.resized = size
        write_size(self.process.folder, cols, rows)
        self._wake()

    def close(self) -> None:
        if self.closed:
            return
        self.closed = True
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._master)
        loop.remove_writer(self._master)
        self._reading = False
        os.close(self._master)
        self._wake()
        self._gone(self)

    def end(self) -> None:
        for number in (signal.SIGHUP, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.process.pid, number)
        self.close()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def attach(self, connection: Connection, after: int | None) -> None:
        """Serve one viewer until it disconnects or the terminal ends."""
        viewer = Viewer(self.total)
        if after is not None and self._base <= after <= self.total:
            viewer.sent = viewer.acked = after
        else:
            viewer.wants_screen = True
        self._viewers.add(viewer)
        writing = asyncio.ensure_future(self._write_to(viewer, connection))
        reading = asyncio.ensure_future(self._read_from(viewer, connection))
        try:
            done, _ = await asyncio.wait({writing, reading}, return_when=asyncio.FIRST_COMPLETED)
            if reading not in done and isinstance(writing.exception(), OSError):
                # What the viewer sent before it left is still typed.
                self._viewers.discard(viewer)
                await asyncio.wait({reading}, timeout=_LAST_KEYS_S)
            for task in done:
                error = task.exception()
                if error is not None and not isinstance(error, (OSError, RequestError)):
                    raise error
        finally:
            self._viewers.discard(viewer)
            for task in (writing, reading):
                task.cancel()
            await asyncio.gather(writing, reading, return_exceptions=True)
            if not self.closed:
                self.pace()

    async def _write_to(self, viewer: Viewer, connection: Connection) -> None:
        while True:
            changed = self._changed
            if viewer.resized is not None:
                size, viewer.resized = viewer.resized, None
                await connection.write(frame(RESIZE, size))
            elif viewer.wants_screen or viewer.sent < self._base:
                viewer.wants_screen = False
                screen = await self._model.snapshot()
                viewer.sent = viewer.acked = self.total
                viewer.acked_at = time.monotonic()
                size = struct.pack(">QHH", self.total, self.cols, self.rows)
                await connection.write(frame(SCREEN, size + screen))
            elif viewer.sent < self.total and viewer.sent - viewer.acked < WINDOW:
                begin = viewer.sent - self._base
                data = bytes(self._ring[begin : begin + min(_READ, WINDOW - (viewer.sent - viewer.acked))])
                head = struct.pack(">Q", viewer.sent)
                viewer.sent += len(data)
                await connection.write(frame(OUTPUT, head + data))
            elif self.closed and viewer.sent >= self.total:
                code = await self._exit_code()
                await connection.write(frame(EXIT, json.dumps({"exit_code": code}).encode()))
                return
            else:
                await changed.wait()

    async def _exit_code(self) -> int | None:
        for _ in range(100):
            code = self.process.exit_code
            if code is not None or (not self.process.alive and _ > 20):
                return code
            await asyncio.sleep(0.02)
        return None

    async def _read_from(self, viewer: Viewer, connection: Connection) -> None:
        buffer = bytearray()
        while True:
            data = await connection.read()
            if not data:
                return
            buffer += data
            while len(buffer) >= 5:
                size = int.from_bytes(buffer[1:5], "big")
                if size > _MOST_INPUT:
                    raise invalid("a message is too long")
                if len(buffer) < 5 + size:
                    break
                kind, payload = bytes(buffer[:1]), bytes(buffer[5 : 5 + size])
                del buffer[: 5 + size]
                self._take(viewer, kind, payload)

    def _take(self, viewer: Viewer, kind: bytes, payload: bytes) -> None:
        if kind == INPUT:
            self.type(payload)
        elif kind == ACK and len(payload) == 8:
            number = int.from_bytes(payload, "big")
            if viewer.acked < number <= viewer.sent:
                viewer.acked = number
                viewer.acked_at = time.monotonic()
                self._wake()
                self.pace()
        elif kind == RESIZE:
            try:
                size = json.loads(payload)
                self.resize(*check_size(size["cols"], size["rows"]))
            except (ValueError, KeyError, TypeError):
                raise invalid("a resize is {cols, rows}") from None


def frame(kind: bytes, payload: bytes) -> bytes:
    return kind + len(payload).to_bytes(4, "big") + payload


def _open_pty() -> tuple[int, int]:
    try:
        return pty.openpty()
    except OSError as error:  # without a number: the kernel's reason is lost
        text = "no pseudo terminal is left: programs in this workspace or on its machine have taken all"
        raise RequestError(429, "TOO_MANY_REQUESTS", text) from error


def write_size(folder: str, cols: int, rows: int) -> None:
    path = os.path.join(folder, "size")
    with contextlib.suppress(OSError):
        with open(path + ".new", "w") as file:
            json.dump([cols, rows], file)
        os.rename(path + ".new", path)


class Terminals:
    def __init__(self, root: str, home: str, env: dict[str, str]) -> None:
        self._root = root
        self._home = home
        self._env = {**env, "TERM": "xterm-256color", "COLORTERM": "truecolor"}
        self._open: dict[str, Terminal] = {}
        os.makedirs(root, mode=0o700, exist_ok=True)

    def take_over(self) -> None:
        """Take over terminals that an earlier `workspaced` of this start created and whose programs still run."""
        for name in os.listdir(self._root):
            folder = os.path.join(self._root, name)
            try:
                with open(os.path.join(folder, "spec.json")) as file:
                    raw = json.load(file)
                with open(os.path.join(folder, "size")) as file:
                    cols, rows = json.load(file)
                process = Process(
                    name, "terminal", raw["command"], raw["started_at"], raw["pid"], raw["start"], folder
                )
                if not _ID.match(name) or raw["boot"] != boot_id() or not process.alive:
                    raise ValueError(name)
                terminal = Terminal(process, holder.take_master(folder), cols, rows, self._forget)
            except (OSError, ValueError, KeyError, TypeError):
                shutil.rmtree(folder, ignore_errors=True)
                continue
            self._open[name] = terminal
            terminal.begin()

    def start(self, command: Sequence[str] | None, cols: int, rows: int, cwd: str | None = None) -> Terminal:
        if len(self._open) >= _MOST_TERMINALS:
            raise RequestError(429, "TOO_MANY_REQUESTS", f"{_MOST_TERMINALS} terminals are open; close one first")
        words = list(command) if command else [holder.shell(), "-l"]
        id_ = secrets.token_hex(8)
        folder = os.path.join(self._root, id_)
        master, slave = _open_pty()
        try:
            os.mkdir(folder, 0o700)
            where = os.path.join(self._home, cwd) if cwd else self._home
            launch = holder.Launch(folder, words, where, self._env, tty=True, cols=cols, rows=rows)
            started = holder.start(launch, master, slave)
            spec = {"command": words, "started_at": time.time(), "pid": started.pid, "start": started.start}
            with open(os.path.join(folder, "spec.json"), "w") as file:
                json.dump({**spec, "boot": boot_id()}, file)
            write_size(folder, cols, rows)
        except OSError as error:
            os.close(master)
            shutil.rmtree(folder, ignore_errors=True)
            raise invalid(f"the command could not be started: {error.strerror or error}") from error
        finally:
            os.close(slave)
        process = Process(id_, "terminal", words, time.time(), started.pid, started.start, folder)
        terminal = Terminal(process, master, cols, rows, self._forget)
        self._open[id_] = terminal
        terminal.begin()
        return terminal

    def _forget(self, terminal: Terminal) -> None:
        self._open.pop(terminal.id, None)
        loop = asyncio.get_running_loop()
        # Viewers read the exit code for a moment longer.
        loop.call_later(30.0, shutil.rmtree, terminal.process.folder, True)

    def get(self, id_: str) -> Terminal:
        terminal = self._open.get(id_)
        if terminal is None:
            raise not_found(f"there is no terminal {id_}; it has ended")
        return terminal

    def all(self) -> list[Terminal]:
        return sorted(self._open.values(), key=lambda terminal: terminal.process.started_at)
