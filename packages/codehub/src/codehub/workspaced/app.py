"""The routes of all requests. Only this module knows all the others."""

from __future__ import annotations

import asyncio
import os
import shlex
import time
from typing import NamedTuple

from . import FEATURES, VERSION, activity, archives, holder, netports, proctable, streams
from .environment import Environment
from .errors import conflict, invalid, not_found
from .files import Files
from .git_access import GitAccess
from .http1 import Request, Response, as_json, decoded
from .link import Link, LinkError
from .process_routes import ProcessRoutes
from .processes import Processes
from .request_body import EMPTY, command_of, not_allowed, whole_number
from .secret_files import SecretFiles
from .setup import Setup
from .sshd import Sshd
from .terminals import Terminal, Terminals, check_size
from .timestamps import timestamp
from .with_environment import saved_environment

_SAMPLE_S = 5.0
_SSH_TIMEOUT_S = 10.0  # CodeHub may just be restarting, and the client waits
TAR = "application/x-tar"


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
        self._environment.put_repository(saved_environment(options.home))
        self.link = Link(self._take, lambda: [{"event": "setup", "setup": self.setup.shown()}])
        self.git = GitAccess(options.runtime, self.link)
        self.setup = Setup(options.home, options.state, options.runtime, self.processes, self.link)
        self.setup.on_environment = self._environment.put_repository
        self._history = activity.History()
        self._process_routes = ProcessRoutes(self.processes, self._history)
        self._started_at = time.time()

    def reap(self) -> None:
        """Reap the children that have ended."""
        holder.reap()
        self.sshd.reap()

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
            return await self._process_routes.exec(request)
        if first == "processes":
            return await self._process_routes.handle(request, parts[1:])
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
        if parts == ["setup", "skip"] and method == "POST":
            await self.setup.skip(str((await request.json()).get("step")))
            return EMPTY
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

    # --- files

    async def _file(self, request: Request, path: bytes) -> Response:
        method, query = request.method, request.query
        if method in ("GET", "HEAD"):
            if query.get("list", "0") not in ("0", ""):
                depth = whole_number(query.get("depth", "1"), "depth")
                return self.files.list(path, depth, query.get("after", ""))
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
            return EMPTY
        raise not_allowed(request)

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
                command = command_of(body) if body.get("command") else None
                cwd = body.get("cwd")
                terminal = self.terminals.start(command, cols, rows, cwd if isinstance(cwd, str) else None)
                return as_json(_shown_terminal(terminal), 201)
            return as_json({"items": [_shown_terminal(terminal) for terminal in self.terminals.all()]})
        terminal = self.terminals.get(parts[0])
        if parts[1:] == ["attach"]:
            streams.check_upgrade(request)
            after = request.query.get("after", "")
            number = whole_number(after, "after") if after else None
            await streams.switch(request.connection)
            await terminal.attach(request.connection, number)
            return None
        if parts[1:] == [] and method == "DELETE":
            terminal.end()
            return EMPTY
        if parts[1:] == [] and method == "GET":
            return as_json(_shown_terminal(terminal))
        raise not_allowed(request)

    # --- streams

    async def _tcp(self, request: Request, port: int) -> None:
        streams.check_upgrade(request)
        other = await streams.connect(port)
        try:
            await streams.switch(request.connection)
        except BaseException:
            other.close()
            raise
        await streams.relay(request.connection, other)

    async def _ssh(self, request: Request, parts: list[str]) -> Response | None:
        if parts == ["host-key"] and request.method == "POST":
            return as_json(self.sshd.make_host_key(), 201)
        if request.method == "PUT":
            return as_json(self._configure_ssh(await request.json()))
        streams.check_upgrade(request)
        self.sshd.program  # noqa: B018 - refuses before the connection is upgraded
        if not self.sshd.is_configured:
            await self._request_ssh_keys()
        if request.connection.read_ahead:
            raise invalid("nothing may be sent before 101")
        await streams.switch(request.connection)
        self.sshd.serve(request.connection)
        request.connection.given_away = True
        return None

    def _configure_ssh(self, body: dict[str, object]) -> dict[str, object]:
        host_key, keys = body.get("host_key"), body.get("authorized_keys")
        if not isinstance(host_key, str) or not isinstance(keys, list) or not all(isinstance(k, str) for k in keys):
            raise invalid("`host_key` is a private key, `authorized_keys` a list of public ones")
        return self.sshd.configure(host_key, keys)

    async def _request_ssh_keys(self) -> None:
        """Get the keys from CodeHub, which keeps them: `codehub ssh` sends them first, other clients may not."""
        try:
            found = await self.link.ask("ssh", timeout_s=_SSH_TIMEOUT_S)
            if found.get("host_key") is None:
                found = await self.link.ask("ssh", self.sshd.make_host_key(), timeout_s=_SSH_TIMEOUT_S)
        except LinkError as error:
            raise conflict(f"SSH is not set up for this start of the workspace: {error}") from error
        self._configure_ssh(found)

    # --- activity

    def activity(self) -> dict[str, object]:
        """Return whether this workspace is busy, and why."""
        now = time.monotonic()
        procs = self._history.add(now, proctable.read(os.getuid()))
        before, window_s = self._history.before(now)
        roots = {process.pid: shlex.join(process.command) for process in self.processes.running()}
        servers = {proc.pid for proc in procs if proc.name.startswith("sshd")}
        for proc in procs:
            if proc.parent in servers and proc.pid not in servers:
                roots[proc.pid] = proc.name
        busy = activity.busiest(procs, before, roots, window_s, self._history.foreground)
        if busy is None and self.setup.keeps_awake:
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
