"""The running daemon: its connections, sessions, workspaces and shutdown.

    serving ──retire──► draining ──last session gone, or timeout─────────► ended
       │  ◄──the successor died──┘                                           ▲
       └──stop, or idle──────────────────────────────────────────────────────┘

Everything here runs in the event loop. Tools and the opening of workspaces run in threads; the registry has its own
thread.
"""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from sari import __version__
from sari.daemon import sockets
from sari.daemon.calls import Calls
from sari.daemon.connection import Connection
from sari.daemon.log import fields, logger
from sari.daemon.root_access import RootAccess
from sari.daemon.sessions import CALLS_AT_ONCE, MOST_ROOTS, Session, Sessions
from sari.daemon.workspaces import Workspaces
from sari.protocol.tooling import WorkspaceOpener
from sari.protocol.versions import SERVED_PROTOCOLS, WIRE_PROTOCOL
from sari.registry.layout import Layout
from sari.registry.settings import Settings

# Enough for eight sessions that use all their turns.
_CALL_THREADS = 8 * CALLS_AT_ONCE
# Separate pools, so that opening and closing workspaces and running calls never wait for each other.
_OPEN_THREADS = 4
_LONGEST_TICK_S = 1.0
_CLOSING_S = 10.0


@dataclass(frozen=True, slots=True)
class Listeners:
    """The two sockets a daemon listens on."""

    daemon: socket.socket
    http: socket.socket


class Service:
    """The lifecycle of one daemon, from ready to ended."""

    def __init__(
        self,
        boot_id: str,
        token: str,
        settings: Settings,
        listeners: Listeners,
        opener: WorkspaceOpener,
        layout: Layout,
        home: str,
    ) -> None:
        self.boot_id = boot_id
        self.token = token
        self.settings = settings
        self.listeners = listeners
        self.start_ts = time.time()
        self.draining = False
        self.connections: set[Connection] = set()
        # Those that have not proven that they hold the token, in the order in which they connected.
        self.strangers: dict[Connection, None] = {}
        self.sessions = Sessions(settings.session_lease_s)
        self._call_threads = ThreadPoolExecutor(_CALL_THREADS, "sari-call")
        self._open_threads = ThreadPoolExecutor(_OPEN_THREADS, "sari-open")
        self.workspaces = Workspaces(opener, Path(layout.data_dir), self._open_threads)
        self.calls = Calls(
            self.workspaces, self._call_threads, _CALL_THREADS, RootAccess(layout, home), settings.request_timeout_s
        )
        self.drain_changed: asyncio.Event = asyncio.Event()
        self._ended = asyncio.Event()
        self._why_ended = ""
        self._stirred = asyncio.Event()
        self._last_used = time.monotonic()
        self._drain_until = 0.0
        self._accepting: asyncio.Task[None] | None = None
        self._warming: set[asyncio.Task[None]] = set()

    # Start and end

    def begin(self) -> None:
        """Accept connections."""
        self._accepting = asyncio.get_running_loop().create_task(self._accept())

    async def run(self) -> str:
        """Serve until stopped, idle or drained. Returns the reason."""
        if self._accepting is None:
            self.begin()
        while not self._ended.is_set():
            self._stirred.clear()
            await self._tick()
            try:
                await asyncio.wait_for(self._stirred.wait(), self._tick_s())
            except TimeoutError:
                continue
        return self._why_ended

    async def close(self) -> None:
        """Release all resources within a bounded time."""
        if self._accepting is not None:
            self._accepting.cancel()
        for connection in list(self.connections):
            connection.close()
        try:
            await asyncio.wait_for(self.workspaces.close_all(), _CLOSING_S)
        except TimeoutError:
            logger.warning("workspaces did not close in time")

    def stop(self, why: str) -> None:
        """Request a shutdown."""
        if not self._ended.is_set():
            self._why_ended = why
            self._ended.set()
            self._stirred.set()

    def drain(self, why: str) -> None:
        """Drain after a successor has taken over: send the sessions to it, finish running calls, then end."""
        if self.draining:
            return
        logger.info("draining %s", fields(why=why))
        self.draining = True
        self._drain_until = time.monotonic() + self.settings.drain_s
        if self._accepting is not None:
            # The sockets stay open: if the successor dies, this daemon accepts connections again.
            self._accepting.cancel()
            self._accepting = None
        for connection in list(self.connections):
            if connection.is_session:
                connection.send({"jsonrpc": "2.0", "method": "sari/move", "params": {}})
        self.drain_changed.set()
        self._stirred.set()

    def undrain(self) -> None:
        """Resume serving, because the successor died before it could serve."""
        if self.draining and not self._ended.is_set():
            logger.warning("the successor is gone: serving again")
            self.draining = False
            self.begin()
            self.drain_changed.set()

    def hand_over(self, path: str) -> int:
        """Pass the listening sockets to the successor that waits at this path."""
        return sockets.send_sockets(path, [self.listeners.daemon, self.listeners.http])

    # Called by connections and the HTTP server

    def identity(self) -> dict[str, object]:
        """Return the answer to `sari/identify`."""
        return {
            "name": "sari",
            "version": __version__,
            "boot_id": self.boot_id,
            "pid": os.getpid(),
            "protocol": WIRE_PROTOCOL,
            "protocols": list(SERVED_PROTOCOLS),
            "draining": self.draining,
            "workspaces": [slot.root for slot in self.workspaces.slots()],
        }

    def info(self) -> dict[str, object]:
        """Return the data that `sari status` shows."""
        now = time.monotonic()
        return {
            **self.identity(),
            "host": sockets.HOST,
            "port": sockets.port_of(self.listeners.daemon),
            "http_port": sockets.port_of(self.listeners.http),
            "start_ts": self.start_ts,
            "running_calls": self.calls.running,
            "workspaces": [
                {
                    "root": slot.root,
                    "sessions": self.sessions.count(slot.root, now),
                    "running_calls": slot.running,
                    "last_active_ts": slot.last_active,
                    "status": dict(slot.opened.status()) if slot.opened is not None else {},
                }
                for slot in self.workspaces.slots()
            ],
            "sessions": [
                {
                    "session_id": session.session_id,
                    "client": session.client,
                    "roots": sorted(session.roots),
                    "connected": session.connections > 0,
                    "leased": self.sessions.is_leased(session, now),
                    "idle_s": round(now - session.last_request, 3),
                }
                for session in self.sessions
            ],
        }

    def begin_session(
        self, session_id: str, client: str, roots: Sequence[str], idle_s: float, process: int
    ) -> Session:
        """Register a shim's session. A session that comes from a predecessor keeps its lease."""
        now = time.monotonic()
        session = self.sessions.take(session_id, client, now - idle_s)
        session.process = process
        self.sessions.connect(session)
        if self.sessions.is_leased(session, now):
            for root in roots[:MOST_ROOTS]:
                task = asyncio.get_running_loop().create_task(self._warm(session, root))
                self._warming.add(task)
                task.add_done_callback(self._warming.discard)
        return session

    async def _warm(self, session: Session, root: str) -> None:
        try:
            slot = await self.workspaces.enter(root)
        except Exception:  # noqa: BLE001 - runs in the background, so no caller handles the error
            # The call that needs the workspace reports the error to its client.
            logger.exception("workspace could not be opened %s", fields(root=root))
            return
        session.use(root)
        self.workspaces.leave(slot)
        self._stirred.set()

    def touch(self) -> None:
        """Record activity."""
        self._last_used = time.monotonic()

    def someone_left(self) -> None:
        """A connection or a call has ended: check whether a workspace, or the daemon, can be closed."""
        self._stirred.set()

    def note_defect(self, error: BaseException | None) -> None:
        """Log an error that prevented an answer."""
        logger.error("defect %s", fields(error=repr(error)))

    # Internal

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                sock, _ = await loop.sock_accept(self.listeners.daemon)
            except OSError as error:
                # Out of file descriptors, or the peer disconnected while queued.
                logger.warning("accept failed %s", fields(error=str(error)))
                await asyncio.sleep(0.05)
                continue
            try:
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                await loop.connect_accepted_socket(lambda: Connection(self), sock)
            except OSError:
                sock.close()

    def _tick_s(self) -> float:
        times = [self.settings.session_lease_s, self.settings.workspace_idle_s, self.settings.daemon_idle_s]
        shortest = min((one for one in times if one > 0), default=_LONGEST_TICK_S)
        return max(0.02, min(_LONGEST_TICK_S, shortest / 4))

    async def _tick(self) -> None:
        now = time.monotonic()
        self.sessions.expire(now)
        await self.workspaces.close_unused(
            lambda root: self.sessions.count(root, now) > 0, self.settings.workspace_idle_s, now
        )
        in_use = self.calls.running > 0 or any(
            slot.running or self.sessions.count(slot.root, now) for slot in self.workspaces.slots()
        )
        if in_use:
            self._last_used = now
        if self.draining:
            gone = not any(connection.is_session for connection in self.connections) and not self.calls.running
            if gone or now >= self._drain_until:
                self.stop("drained" if gone else "drained for too long")
        elif self.settings.daemon_idle_s and now - self._last_used >= self.settings.daemon_idle_s:
            self.stop("idle")
