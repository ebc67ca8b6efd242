"""The routes of all requests. Only this module knows all the others."""

from __future__ import annotations

import asyncio
import codecs
import json
import os
import shlex
import time
from collections.abc import AsyncIterator
from typing import NamedTuple

from . import FEATURES, VERSION, activity, archives, netports, proctable, streams
from .environment import Environment
from .errors import RequestError, invalid, not_found
from .files import Files
from .git_access import GitAccess
from .holder import shell
from .http1 import Request, Response, as_json, decoded
from .link import Link
from .processes import Process, Processes, bounded
from .secret_files import SecretFiles
from .setup import Setup
from .sshd import Sshd
from .terminals import Terminal, Terminals, check_size
from .timestamps import timestamp

_SAMPLE_S = 5.0
_LONGEST_TIMEOUT_S = 7 * 86400.0
TAR = "application/x-tar"
_NDJSON = "application/x-ndjson"
_EMPTY = Response(204, {}, b"")


class Options(NamedTuple):
    home: str
    runtime: str  # of this start, 0700, outside the home
    state: str  # in the home: output of processes
    env: dict[str, str]
    hidden_ports: tuple[int, ...] = ()
    environment_fd: int = -1  # through which a waiting IDE gets its environment


class App:
    def __init__(self, options: Options) -> None:
        self._options = options
        self.files = Files(options.home)
        self.processes = Processes(os.path.join(options.state, "processes"), options.home, options.env)
        self.terminals = Terminals(os.path.join(options.runtime, "terminals"), options.home, options.env)
        secrets_dir = options.env.get("CODEHUB_SECRETS_DIR", os.path.join(options.runtime, "secrets"))
        # In memory, beside the secrets, because its configuration contains the environment.
        self.sshd = Sshd(secrets_dir + "-ssh", options.env)
        self.secrets = SecretFiles(secrets_dir)
        self._environment = Environment(options.env, options.environment_fd)
        self.link = Link(self._take, lambda: [{"event": "setup", "setup": self.setup.shown()}])
        self.git = GitAccess(options.runtime, self.link)
        self.setup = Setup(options.home, options.state, options.runtime, self.processes, self.link)
        self.setup.on_environment = self._environment.put_repository
        self._history = activity.History()
        self._started_at = time.time()
        self._moved_at = 0.0  # when a stream to a port last carried data

    async def sample(self) -> None:
        """Sample the process table every few seconds, for the rule about the last minute."""
        while True:
            self._history.add(time.monotonic(), proctable.read(os.getuid()))
            await asyncio.sleep(_SAMPLE_S)

    def _take(self, message: dict[str, object]) -> None:
        """Handle a message from CodeHub: the owner's current secrets and git hosts, and what to set up."""
        if message.get("event") == "image":
            self.setup.image.take(message)
            return
        git = message.get("git")
        if isinstance(git, dict):
            hosts = git.get("hosts")
            self.git.configure(
                [str(host) for host in hosts] if isinstance(hosts, list) else [], str(git.get("ca", ""))
            )
        self.secrets.put(message.get("files"))
        self._environment.put_secrets(message.get("env"))
        self.setup.take(message)

    async def handle(self, request: Request) -> Response | None:
        """Return the response, or None if the connection was handed over or has carried a stream."""
        parts = request.path.split("/")[1:]
        first, method = parts[0], request.method
        if first == "hello":
            return self._hello()
        if first == "exec" and method == "POST":
            return await self._exec(request)
        if first == "processes":
            return await self._process(request, parts[1:])
        if first == "files":
            return await self._file(request, decoded("/".join(parts[1:])))
        if first == "files:edit" and method == "POST":
            return self._edit(await request.json())
        if first == "terminals":
            return await self._terminal(request, parts[1:])
        if first == "ports" and method == "GET":
            return as_json({"items": netports.listeners(os.getuid(), self._options.hidden_ports)})
        if first == "tcp" and len(parts) == 2:
            await self._tcp(request, streams.port_of(parts[1]))
            return None
        if first == "ssh":
            return await self._ssh(request, parts[1:])
        if first == "link":
            streams.check_upgrade(request)
            await streams.switch(request.connection)
            await self.link.serve(request.connection)
            return None
        if first == "setup" and method == "GET":
            if parts[1:] == ["log"]:
                return Response(200, {"Content-Type": "text/plain; charset=utf-8"}, self.setup.log().encode())
            return as_json(self.setup.shown())
        if first == "activity" and method == "GET":
            return as_json(self.activity())
        raise not_found(f"{method} {request.path} is not known to workspaced {VERSION}")

    def _hello(self) -> Response:
        return as_json(
            {
                "version": VERSION,
                "features": list(FEATURES),
                "started_at": self._started_at,
                "user": self.sshd.user,
                "home": self._options.home,
            }
        )

    # --- exec and processes

    async def _exec(self, request: Request) -> Response:
        body = await request.json()
        process = self._start("exec", body)
        wait, kill = _flag(body, "wait", True), _flag(body, "kill_on_disconnect", False)
        timeout_s = _timeout(body)
        if not wait:
            if timeout_s is not None:
                asyncio.ensure_future(self._limit(process, timeout_s))  # noqa: RUF006 - ends with the process
            return as_json({"process_id": process.id, **self._result(process)}, 201)
        if _NDJSON in request.headers.get("accept", ""):
            return Response(200, {"Content-Type": _NDJSON}, self._streamed(process, timeout_s, kill))
        await self._waited(request, process, timeout_s, kill)
        return as_json(self._result(process))

    def _start(self, kind: str, body: dict[str, object]) -> Process:
        command = _command(body)
        env = body.get("env") or {}
        if not isinstance(env, dict) or not all(isinstance(v, str) for pair in env.items() for v in pair):
            raise invalid("`env` is an object of strings")
        cwd, stdin = body.get("cwd"), body.get("stdin")
        if not isinstance(cwd, (str, type(None))) or not isinstance(stdin, (str, type(None))):
            raise invalid("`cwd` and `stdin` are strings")
        return self.processes.start(kind, command, cwd, env, stdin)

    async def _limit(self, process: Process, timeout_s: float) -> None:
        try:
            await asyncio.wait_for(self.processes.wait(process), timeout_s)
        except asyncio.TimeoutError:
            await self.processes.end(process)

    async def _waited(self, request: Request, process: Process, timeout_s: float | None, kill: bool) -> None:
        ended = asyncio.ensure_future(self.processes.wait(process))
        left = asyncio.ensure_future(request.connection.closed_by_peer())
        try:
            done, _ = await asyncio.wait({ended, left}, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
            if left in done and ended not in done:
                if kill:
                    await self.processes.end(process)
                raise ConnectionResetError("the caller has hung up")
            if not done:
                await self.processes.end(process)
        finally:
            for task in (ended, left):
                task.cancel()
            await asyncio.gather(ended, left, return_exceptions=True)

    def _result(self, process: Process) -> dict[str, object]:
        texts: dict[str, object] = {}
        truncated = False
        for stream in ("stdout", "stderr"):
            text, cut = bounded(process.log_path(stream), process.log_path(stream))
            texts[stream] = text
            truncated = truncated or cut
        return {
            "exit_code": process.exit_code,
            **texts,
            "truncated": truncated,
            "process_id": process.id,
            "state": process.state,
        }

    async def _streamed(self, process: Process, timeout_s: float | None, kill: bool) -> AsyncIterator[bytes]:
        """Yield one JSON object per line: chunks of output as they arrive, then the exit status."""
        queue: asyncio.Queue[bytes | None] = asyncio.Queue(8)

        async def pump(stream: str) -> None:
            decoder = codecs.getincrementaldecoder("utf-8")("replace")
            async for data in self.processes.output(process, stream, 0, follow=True):
                text = decoder.decode(data)
                if text:
                    await queue.put(_line({"stream": stream, "data": text}))
            await queue.put(None)

        yield _line({"process_id": process.id})
        tasks = [asyncio.ensure_future(pump(stream)) for stream in ("stdout", "stderr")]
        if timeout_s is not None:
            tasks.append(asyncio.ensure_future(self._limit(process, timeout_s)))
        whole = False
        try:
            open_streams = 2
            while open_streams:
                line = await queue.get()
                if line is None:
                    open_streams -= 1
                else:
                    yield line
            code = await self.processes.wait(process)
            whole = True
            yield _line({"exit_code": code, "state": process.state, "process_id": process.id})
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            if kill and not whole:
                await self.processes.end(process)

    async def _process(self, request: Request, parts: list[str]) -> Response:
        method = request.method
        if not parts or parts == [""]:
            if method == "POST":
                return as_json(self._shown(self._start("process", await request.json())), 201)
            if method == "GET":
                return as_json({"items": [self._shown(process) for process in self.processes.all()]})
            raise _not_allowed(request)
        process = self.processes.get(parts[0])
        if parts[1:] == [] and method == "GET":
            return as_json(self._shown(process))
        if parts[1:] == ["output"] and method == "GET":
            stream = request.query.get("stream", "stdout")
            if stream not in ("stdout", "stderr"):
                raise invalid("`stream` is stdout or stderr")
            after = _number(request.query.get("after", "0"), "after")
            follow = request.query.get("follow", "0") not in ("0", "false")
            headers = {"Content-Type": "application/octet-stream", "Codehub-After": str(after)}
            return Response(200, headers, self.processes.output(process, stream, after, follow))
        if parts[1:] == ["signal"] and method == "POST":
            body = await request.json()
            self.processes.signal(process, str(body.get("signal", "TERM")))
            return _EMPTY
        raise _not_allowed(request)

    def _shown(self, process: Process) -> dict[str, object]:
        state = process.state
        shown: dict[str, object] = {
            "id": process.id,
            "kind": process.kind,
            "command": shlex.join(process.command),
            "state": state,
            "exit_code": process.exit_code,
            "started_at": timestamp(process.started_at),
            "cpu_percent": 0.0,
            "log": process.log_path("stdout"),
        }
        if state == "running":
            procs = proctable.read(os.getuid())
            before, window_s = self._history.before(time.monotonic())
            mine = activity.below(procs, [process.pid])
            seconds = sum(activity.used(proc, before) for proc in procs if proc.pid in mine)
            age = min(window_s, max(1.0, time.time() - process.started_at))
            shown["cpu_percent"] = round(100 * seconds / age, 1)
        return shown

    # --- files

    async def _file(self, request: Request, path: bytes) -> Response:
        method, query = request.method, request.query
        if method in ("GET", "HEAD"):
            if query.get("list", "0") not in ("0", ""):
                return self.files.list(path, _number(query.get("depth", "1"), "depth"))
            if TAR in request.headers.get("accept", "") or self.files.is_directory(path):
                ignore = query.get("dockerignore", "0") not in ("0", "")
                return archives.download(self.files.home, path, dockerignore=ignore)
            return self.files.read(path, request.headers.get("range", ""))
        if method == "PUT":
            if request.headers.get("content-type", "").startswith(TAR):
                return await archives.upload(self.files.home, path, request.body())
            mode = query.get("mode")
            try:
                number = int(mode, 8) if mode is not None else None
            except ValueError:
                raise invalid("`mode` is octal, such as 755") from None
            return await self.files.write(path, request.body(), number)
        if method == "DELETE":
            self.files.remove(path, query.get("recursive", "0") not in ("0", "false"))
            return _EMPTY
        raise _not_allowed(request)

    def _edit(self, body: dict[str, object]) -> Response:
        path, old, new, count = (body.get(name) for name in ("path", "old", "new", "expected_count"))
        count = 1 if count is None else count
        if not isinstance(path, str) or not isinstance(old, str) or not isinstance(new, str):
            raise invalid("`path`, `old` and `new` are strings")
        if not isinstance(count, int) or isinstance(count, bool) or count < 1:
            raise invalid("`expected_count` is a number from 1 on")
        return self.files.edit(path.encode("utf-8", "surrogateescape"), old, new, count)

    # --- terminals

    async def _terminal(self, request: Request, parts: list[str]) -> Response | None:
        method = request.method
        if not parts or parts == [""]:
            if method == "POST":
                body = await request.json()
                cols, rows = check_size(body.get("cols", 80), body.get("rows", 24))
                command = _command(body) if body.get("command") else None
                cwd = body.get("cwd")
                terminal = self.terminals.start(command, cols, rows, cwd if isinstance(cwd, str) else None)
                return as_json(_shown_terminal(terminal), 201)
            return as_json({"items": [_shown_terminal(terminal) for terminal in self.terminals.all()]})
        terminal = self.terminals.get(parts[0])
        if parts[1:] == ["attach"]:
            streams.check_upgrade(request)
            after = request.query.get("after", "")
            number = _number(after, "after") if after else None
            await streams.switch(request.connection)
            await terminal.attach(request.connection, number)
            return None
        if parts[1:] == [] and method == "DELETE":
            terminal.end()
            return _EMPTY
        if parts[1:] == [] and method == "GET":
            return as_json(_shown_terminal(terminal))
        raise _not_allowed(request)

    # --- streams

    async def _tcp(self, request: Request, port: int) -> None:
        streams.check_upgrade(request)
        other = await streams.connect(port)
        try:
            await streams.switch(request.connection)
        except BaseException:
            other.close()
            raise
        await streams.relay(request.connection, other, self._moved)

    def _moved(self, size: int) -> None:
        self._moved_at = time.time()

    async def _ssh(self, request: Request, parts: list[str]) -> Response | None:
        if parts == ["host-key"] and request.method == "POST":
            return as_json(self.sshd.make_host_key(), 201)
        if request.method == "PUT":
            body = await request.json()
            host_key, keys = body.get("host_key"), body.get("authorized_keys")
            if (
                not isinstance(host_key, str)
                or not isinstance(keys, list)
                or not all(isinstance(k, str) for k in keys)
            ):
                raise invalid("`host_key` is a private key, `authorized_keys` a list of public ones")
            return as_json(self.sshd.configure(host_key, keys))
        streams.check_upgrade(request)
        self.sshd.ready()
        self.sshd.program  # noqa: B018 - refuses before the connection is upgraded
        if request.connection.read_ahead:
            raise invalid("nothing may be sent before 101")
        await streams.switch(request.connection)
        self.sshd.serve(request.connection)
        request.connection.given_away = True
        return None

    # --- activity

    def activity(self) -> dict[str, object]:
        """Return whether this workspace is busy, and why."""
        now = time.monotonic()
        procs = proctable.read(os.getuid())
        self._history.add(now, procs)
        before, window_s = self._history.before(now)
        roots = {process.pid: shlex.join(process.command) for process in self.processes.running()}
        servers = {proc.pid for proc in procs if proc.name.startswith("sshd")}
        for proc in procs:
            if proc.parent in servers and proc.pid not in servers:
                roots[proc.pid] = proc.name
        busy = activity.busiest(procs, before, roots, window_s)
        if busy is None and self.setup.shown()["running"]:
            return {"active": True, "reason": "the workspace's setup", "cpu_percent": 0.0}
        if busy is None:
            return {"active": False, "reason": None, "cpu_percent": 0.0}
        return {"active": True, "reason": busy.name, "cpu_percent": busy.cpu_percent}


def _shown_terminal(terminal: Terminal) -> dict[str, object]:
    return {
        "id": terminal.id,
        "command": shlex.join(terminal.process.command),
        "cols": terminal.cols,
        "rows": terminal.rows,
        "viewers": terminal.viewers,
        "started_at": timestamp(terminal.process.started_at),
    }


def _command(body: dict[str, object]) -> list[str]:
    """Return the command: a list of words as given, or a text for the user's shell."""
    command = body.get("command")
    if isinstance(command, str) and command.strip() and "\0" not in command:
        return [shell(), "-c", command]
    if isinstance(command, list) and command and all(isinstance(w, str) and "\0" not in w for w in command):
        return [str(word) for word in command]
    raise invalid("`command` is a list of words or a line for the shell")


def _timeout(body: dict[str, object]) -> float | None:
    value = body.get("timeout_s")
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= _LONGEST_TIMEOUT_S:
        raise invalid("`timeout_s` is a number of seconds above 0")
    return float(value)


def _flag(body: dict[str, object], name: str, default: bool) -> bool:
    value = body.get(name, default)
    if not isinstance(value, bool):
        raise invalid(f"`{name}` is true or false")
    return value


def _number(text: str, name: str) -> int:
    if not text.isdigit() or len(text) > 18:
        raise invalid(f"`{name}` is a number")
    return int(text)


def _line(value: object) -> bytes:
    return json.dumps(value).encode() + b"\n"


def _not_allowed(request: Request) -> RequestError:
    return RequestError(405, "METHOD_NOT_ALLOWED", f"{request.method} is not possible here")
