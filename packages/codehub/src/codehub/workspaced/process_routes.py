"""The routes of exec and of processes."""

from __future__ import annotations

import asyncio
import codecs
import json
import os
import shlex
import time
from collections.abc import AsyncIterator

from . import activity, proctable
from .errors import invalid
from .http1 import Request, Response, as_json
from .processes import Process, Processes, bounded
from .request_body import EMPTY, command_of, not_allowed, whole_number
from .timestamps import timestamp

_LONGEST_TIMEOUT_S = 7 * 86400.0
_NDJSON = "application/x-ndjson"


class ProcessRoutes:
    def __init__(self, processes: Processes, history: activity.History) -> None:
        self.processes = processes
        self._history = history

    async def exec(self, request: Request) -> Response:
        body = await request.json()
        wait, kill = _flag(body, "wait", True), _flag(body, "kill_on_disconnect", False)
        timeout_s = _timeout(body)
        process = self._start("exec", body)
        if not wait:
            if timeout_s is not None:
                asyncio.ensure_future(self._limit(process, timeout_s))  # noqa: RUF006 - ends with the process
            return as_json({"process_id": process.id, **self._result(process)}, 201)
        if _NDJSON in request.headers.get("accept", ""):
            return Response(200, {"Content-Type": _NDJSON}, self._streamed(process, timeout_s, kill))
        await self._waited(request, process, timeout_s, kill)
        return as_json(self._result(process))

    def _start(self, kind: str, body: dict[str, object]) -> Process:
        command = command_of(body)
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
                raise ConnectionResetError("the caller has disconnected")
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

    async def handle(self, request: Request, parts: list[str]) -> Response:
        method = request.method
        if not parts or parts == [""]:
            if method == "POST":
                return as_json(self._shown(self._start("process", await request.json())), 201)
            if method == "GET":
                return as_json({"items": [self._shown(process) for process in self.processes.all()]})
            raise not_allowed(request)
        process = self.processes.get(parts[0])
        if parts[1:] == [] and method == "GET":
            return as_json(self._shown(process))
        if parts[1:] == ["output"] and method == "GET":
            stream = request.query.get("stream", "stdout")
            if stream not in ("stdout", "stderr"):
                raise invalid("`stream` is stdout or stderr")
            after = whole_number(request.query.get("after", "0"), "after")
            follow = request.query.get("follow", "0") not in ("0", "false")
            headers = {"Content-Type": "application/octet-stream", "Codehub-After": str(after)}
            return Response(200, headers, self.processes.output(process, stream, after, follow))
        if parts[1:] == ["signal"] and method == "POST":
            body = await request.json()
            self.processes.signal(process, str(body.get("signal", "TERM")))
            return EMPTY
        raise not_allowed(request)

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


def _line(value: object) -> bytes:
    return json.dumps(value).encode() + b"\n"
