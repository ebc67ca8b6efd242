"""The daemon's interface for the HTTP server (`sari.protocol.facade.Facade`). Threads call it and the event loop
answers.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine, Mapping, Sequence
from concurrent.futures import wait
from pathlib import Path
from typing import Final, TypeVar

from sari.daemon import sockets
from sari.daemon.root_access import without_sari_fields
from sari.daemon.service import Service
from sari.protocol import jsonrpc, mcp
from sari.protocol.errors import SariError, UnknownWorkspace
from sari.protocol.facade import ClientDisconnected, DaemonView, Gone, Notify, SessionView, WorkspaceView
from sari.protocol.jsonrpc import NotAMessage
from sari.protocol.tooling import ToolResult
from sari.registry.store import Store

T = TypeVar("T")
# How often a long call checks whether its client is still connected.
_POLL_INTERVAL_S: Final = 0.25


class DaemonFacade:
    """Implements the facade. Every method blocks its thread until the loop has answered."""

    def __init__(self, service: Service, store: Store, loop: asyncio.AbstractEventLoop) -> None:
        self._service = service
        self._store = store
        self._loop = loop
        self._running: dict[tuple[str, object], asyncio.Task[Mapping[str, object]]] = {}

    def daemon_info(self) -> Mapping[str, object]:
        """Return the daemon's identity, without the token."""
        listeners = self._service.listeners
        return {
            **self._service.identity(),
            "host": sockets.HOST,
            "port": sockets.port_of(listeners.daemon),
            "http_port": sockets.port_of(listeners.http),
            "start_ts": self._service.start_ts,
        }

    def daemons(self) -> Sequence[DaemonView]:
        """Return every live daemon in the registry, oldest first."""
        try:
            registry = self._store.read()
        except SariError:
            # `sari doctor` reports the error. This daemon's page works without the list.
            return []
        return [
            DaemonView(
                entry.version,
                entry.pid,
                entry.port,
                entry.start_ts,
                entry.draining,
                sorted(root for root, place in registry.workspaces.items() if place.boot_id == entry.boot_id),
                entry.boot_id == self._service.boot_id,
            )
            for entry in sorted(registry.daemons.values(), key=lambda entry: entry.start_ts)
        ]

    def workspaces(self) -> Sequence[WorkspaceView]:
        """Return the open workspaces."""

        async def collect() -> list[tuple[WorkspaceView, object]]:
            now = time.monotonic()
            return [
                (
                    WorkspaceView(
                        slot.root, self._service.sessions.count(slot.root, now), slot.running, slot.last_active, {}
                    ),
                    slot.opened,
                )
                for slot in self._service.workspaces.slots()
                if slot.opened is not None
            ]

        views = []
        for view, opened in self._ask(collect()):
            status = opened.status() if hasattr(opened, "status") else {}
            views.append(
                WorkspaceView(view.root, view.sessions, view.running_calls, view.last_active_ts, dict(status))
            )
        return views

    def sessions(self) -> Sequence[SessionView]:
        """Return all sessions."""

        async def collect() -> list[SessionView]:
            now, wall = time.monotonic(), time.time()
            return [
                SessionView(
                    session.session_id,
                    session.client,
                    sorted(session.roots),
                    session.connections > 0,
                    self._service.sessions.is_leased(session, now),
                    wall - (now - session.last_request),
                )
                for session in self._service.sessions
            ]

        return self._ask(collect())

    def call_tool(
        self, root: Path, tool: str, arguments: Mapping[str, object], gone: Gone | None = None
    ) -> ToolResult:
        """Call a tool in an open workspace."""

        async def run() -> ToolResult:
            slot = self._service.workspaces.get(str(root))
            if slot is None or slot.opened is None:
                raise UnknownWorkspace(f"{root} is not open: a client of sari must be using it")
            self._service.touch()
            return await self._service.calls.call(str(root), tool, arguments)

        return self._ask(run(), gone)

    def handle_mcp(
        self,
        message: object,
        session_id: str | None,
        root: Path | None = None,
        notify: Notify | None = None,
        gone: Gone | None = None,
    ) -> Mapping[str, object] | None:
        """Answer one decoded JSON-RPC message. Returns None for a notification."""
        try:
            checked = jsonrpc.check(message)
        except NotAMessage as wrong:
            return wrong.answer
        if "method" not in checked:
            return None
        if "id" not in checked:
            if checked["method"] == "notifications/cancelled":
                self._ask(self._cancel(session_id, jsonrpc.params_of(checked).get("requestId")))
            return None
        answer = mcp.answer(checked)
        if answer is not None:
            return answer
        return self._ask(self._call(checked, session_id, root, notify), gone)

    async def _call(
        self, message: jsonrpc.Message, session_id: str | None, root: Path | None, notify: Notify | None
    ) -> Mapping[str, object]:
        self._service.touch()
        session = None
        if session_id is not None:
            session = self._service.sessions.take(session_id, "", time.monotonic(), http=True)
            session.last_request = time.monotonic()
        key = (session_id or "", message["id"])
        task = asyncio.current_task()
        assert task is not None
        self._running[key] = task
        message = {**message, "params": without_sari_fields(jsonrpc.params_of(message))}
        try:
            return await self._service.calls.answer(message, session, str(root) if root else "", notify)
        except asyncio.CancelledError:
            return jsonrpc.failure(message["id"], jsonrpc.TIMED_OUT, "the call was cancelled")
        finally:
            # A client may use an id twice.
            if self._running.get(key) is task:
                del self._running[key]
            self._service.someone_left()

    async def _cancel(self, session_id: str | None, request_id: object) -> None:
        if isinstance(request_id, str | int | float):
            task = self._running.get((session_id or "", request_id))
            if task is not None:
                task.cancel()

    def lease(self, session_id: str, client: str = "http") -> None:
        """Create or renew an HTTP session's lease."""

        async def take() -> None:
            session = self._service.sessions.take(session_id, client, time.monotonic(), http=True)
            session.last_request = time.monotonic()
            self._service.touch()

        self._ask(take())

    def end_session(self, session_id: str) -> None:
        """End a session that its client no longer needs."""

        async def end() -> None:
            self._service.sessions.end(session_id)
            self._service.someone_left()

        self._ask(end())

    def _ask(self, coroutine: Coroutine[object, object, T], gone: Gone | None = None) -> T:
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        if gone is not None:
            while not wait([future], _POLL_INTERVAL_S).done:
                if gone():
                    future.cancel()
                    raise ClientDisconnected
        return future.result()
