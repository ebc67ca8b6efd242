"""Answers `tools/call`: finds the workspace, runs the tool in a thread, and stores the results of writing tools.

All transports (a shim's connection, HTTP) use it: the caller supplies the session and receives the answer.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Executor
from contextlib import nullcontext
from typing import TypeVar

from sari.daemon.fair_turns import FairTurns
from sari.daemon.log import fields, logger
from sari.daemon.many_roots import MOST_ROOTS, ROWS, arguments_by_root, merge, named_workspaces
from sari.daemon.root_access import RootAccess
from sari.daemon.sessions import Session
from sari.daemon.workspaces import Workspaces
from sari.protocol import jsonrpc, mcp
from sari.protocol.catalog import TOOLS
from sari.protocol.jsonrpc import Message
from sari.protocol.tooling import ToolResult
from sari.registry.roots import RefusedRoot

Notify = Callable[[Mapping[str, object]], None]

_SPECS = {spec.name: spec for spec in TOOLS}
# Enough for every retry that can follow a broken connection.
_REMEMBERED = 256
_PROGRESS_PAUSE_S = 0.1
# Of one client, which may have many sessions. Agents send a few calls at a time.
_CALLS_OF_CLIENT = 8
# For clients without a running call, of those that call without a session and of pages.
_RESERVED = 8
_WITHOUT_SESSION, _PAGE = "http", "page"

T = TypeVar("T")


class RunningCall:
    """The call as seen by its tool (`sari.protocol.tooling.Call`)."""

    def __init__(
        self, notify: Callable[[float, float | None, str], None] | None, limit_s: float = float("inf")
    ) -> None:
        self._cancelled = threading.Event()
        self._notify = notify
        # No client waits longer than this, so no call may continue after it.
        self._deadline = time.monotonic() + limit_s
        self._last = 0.0

    @property
    def cancelled(self) -> bool:
        return self._cancelled.is_set() or time.monotonic() > self._deadline

    def cancel(self) -> None:
        """Cancel the call, because the client no longer needs the answer."""
        self._cancelled.set()

    def progress(self, done: float, total: float | None, message: str) -> None:
        now = time.monotonic()
        if self._notify is None or now - self._last < _PROGRESS_PAUSE_S:
            return
        self._last = now
        self._notify(done, total, message)


class Calls:
    """Runs tool calls."""

    def __init__(
        self, workspaces: Workspaces, threads: Executor, most: int, access: RootAccess, limit_s: float
    ) -> None:
        self._workspaces = workspaces
        self._threads = threads
        self._access = access
        self._limit_s = limit_s
        self._written: OrderedDict[str, asyncio.Future[ToolResult]] = OrderedDict()
        self._turns = FairTurns(most, _CALLS_OF_CLIENT, min(_RESERVED, most // 4))
        self.running = 0

    async def answer(
        self,
        message: Message,
        session: Session | None,
        root: str,
        notify: Notify | None,
        ready: Callable[[], Awaitable[object]] | None = None,
    ) -> Message:
        """Answer one `tools/call`, once its client is `ready` for the answer. Cancelling the task cancels the call."""
        params = jsonrpc.params_of(message)
        name, arguments = params.get("name"), params.get("arguments", {})
        if not isinstance(name, str) or name not in _SPECS:
            known = ", ".join(_SPECS)
            text = f"there is no tool {str(name)[:80]!r}: there are {known}"
            return jsonrpc.failure(message["id"], jsonrpc.INVALID_PARAMS, text)
        if not isinstance(arguments, dict):
            return mcp.tool_answer(message, _refused("`arguments` must be an object"))
        meta = params.get("_meta")
        meta = meta if isinstance(meta, dict) else {}
        call = RunningCall(_progress(notify, meta.get("progressToken")), self._limit_s)
        self.running += 1
        if session is not None:
            session.running += 1
        try:
            async with session.turns if session is not None else nullcontext():
                if ready is not None:
                    await ready()
                result = await self._answer(name, arguments, meta, root, session, call)
        except Exception as error:  # noqa: BLE001 - a bug in a tool fails one call, not the daemon
            logger.exception("call failed %s", fields(tool=name))
            text = f"`{name}` failed inside sari ({type(error).__name__}: {error}): run `sari doctor`"
            return jsonrpc.failure(message["id"], jsonrpc.INTERNAL_ERROR, text)
        finally:
            self.running -= 1
            if session is not None:
                session.running -= 1
                session.last_request = time.monotonic()
        return mcp.tool_answer(message, result)

    async def _answer(
        self, tool: str, arguments: Message, meta: Message, root: str, session: Session | None, call: RunningCall
    ) -> ToolResult:
        # In a thread: a folder on a file system that does not answer would stop the event loop.
        try:
            by_root = await self._in_thread(
                call, _owner(session), lambda: self._arguments_by_root(tool, arguments, meta, root)
            )
        except (RefusedRoot, ValueError) as error:
            return _refused(str(error))
        except RecursionError:
            return _refused("a cursor or a list of workspaces is nested too deeply")
        return await self._in_all(meta.get("sari/key"), tool, by_root, session, call)

    def _arguments_by_root(self, name: str, arguments: Message, meta: Message, root: str) -> dict[str, Message]:
        """Return the arguments for each workspace of a call. Raises `RefusedRoot` and `ValueError`."""
        named = named_workspaces(arguments.get("workspace"))
        if named is None or len(named) < 2:
            one = {**arguments, "workspace": named[0]} if named else arguments
            where = self._access.root_of(one, meta, root)
            if not _SPECS[name].read_only:
                self._access.check_writable(where, meta, root)
            return {where: one}
        if name not in ROWS:
            raise ValueError(f"`{name}` is about one workspace. Name one of them as `workspace`.")
        if len(named) > MOST_ROOTS:
            raise ValueError(f"a call may name at most {MOST_ROOTS} workspaces, not {len(named)}")
        roots = [self._access.root_of({"workspace": one}, meta, root) for one in named]
        by_root = arguments_by_root(arguments, list(dict.fromkeys(roots)))
        takes = _SPECS[name].input_schema["properties"]
        assert isinstance(takes, Mapping)
        return {
            where: {key: own[key] for key in own if key != "max_tokens" or key in takes}
            for where, own in by_root.items()
        }

    async def _in_all(
        self, key: object, tool: str, by_root: Mapping[str, Message], session: Session | None, call: RunningCall
    ) -> ToolResult:
        if len(by_root) == 1:
            ((where, arguments),) = by_root.items()
            return await self._once(key, tool, arguments, where, session, call)
        answers: dict[str, ToolResult] = {}
        for where, arguments in by_root.items():
            answers[where] = await self._run(tool, arguments, where, session, call, _owner(session))
        is_ranked = any(arguments.get("mode") == "ranked" for arguments in by_root.values())
        return merge(tool, is_ranked, answers)

    async def call(self, root: str, tool: str, arguments: Mapping[str, object]) -> ToolResult:
        """Run a tool in a workspace, outside MCP."""
        self.running += 1
        try:
            return await self._run(tool, arguments, root, None, RunningCall(None, self._limit_s), _PAGE)
        finally:
            self.running -= 1

    async def _once(
        self,
        key: object,
        tool: str,
        arguments: Message,
        root: str,
        session: Session | None,
        call: RunningCall,
    ) -> ToolResult:
        """Run a tool. A writing tool runs only once per key, even if a broken connection causes retries."""
        if _SPECS[tool].read_only or not isinstance(key, str):
            return await self._run(tool, arguments, root, session, call, _owner(session))
        done = self._written.get(key)
        if done is not None:
            return await asyncio.shield(done)
        done = self._written[key] = asyncio.get_running_loop().create_future()
        while len(self._written) > _REMEMBERED:
            self._written.popitem(last=False)
        try:
            result = await self._run(tool, arguments, root, session, call, _owner(session))
        except BaseException as error:
            self._written.pop(key, None)
            done.set_exception(RuntimeError(f"the first attempt failed: {error}"))
            done.exception()
            raise
        done.set_result(result)
        return result

    async def _run(
        self,
        tool: str,
        arguments: Mapping[str, object],
        root: str,
        session: Session | None,
        call: RunningCall,
        owner: str,
    ) -> ToolResult:
        slot = await self._workspaces.enter(root)
        if session is not None:
            session.use(root)
        try:
            opened = slot.opened
            assert opened is not None
            return await self._in_thread(call, owner, lambda: opened.call(tool, arguments, call))
        finally:
            self._workspaces.leave(slot)

    async def _in_thread(self, call: RunningCall, owner: str, work: Callable[[], T]) -> T:
        async with self._turns.turn(owner):
            running = asyncio.get_running_loop().run_in_executor(self._threads, work)
            try:
                return await asyncio.shield(running)
            except asyncio.CancelledError:
                # The thread can only be signalled, not stopped. The workspace stays open until the thread ends.
                call.cancel()
                await asyncio.wait([running])
                if not running.cancelled():
                    running.exception()
                raise


def _owner(session: Session | None) -> str:
    return session.owner if session is not None else _WITHOUT_SESSION


def _refused(text: str) -> ToolResult:
    return ToolResult(text, {"error": text}, is_error=True)


def _progress(notify: Notify | None, token: object) -> Callable[[float, float | None, str], None] | None:
    if notify is None or not jsonrpc.is_id(token):
        return None

    def tell(done: float, total: float | None, message: str) -> None:
        params: Message = {"progressToken": token, "progress": done, "message": message}
        if total is not None:
            params["total"] = total
        notify(jsonrpc.notification("notifications/progress", params))

    return tell
