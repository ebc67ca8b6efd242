"""The interfaces between the daemon and its HTTP server. Standard library only.

Every method of `Facade` blocks and is thread-safe: call it from a worker thread, never from an event loop. `HttpServer`
is `sari.web.server.HttpServer`. The listening socket is already bound, belongs to the daemon and may be shared with its
successor: the server must never `shutdown()` it, and after `close()` must no longer accept from it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from sari.protocol.tooling import ToolResult


@dataclass(frozen=True, slots=True)
class WorkspaceView:
    """One open workspace."""

    root: str
    sessions: int
    running_calls: int
    last_active_ts: float
    status: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class SessionView:
    """One client's session: a lease on the workspaces that it used."""

    session_id: str
    client: str
    roots: Sequence[str]
    connected: bool
    leased: bool
    last_request_ts: float


Notify = Callable[[Mapping[str, object]], None]
# Returns whether the caller has disconnected.
Gone = Callable[[], bool]


class ClientDisconnected(Exception):
    """Raised when the caller disconnected, which cancelled the call."""


@dataclass(frozen=True, slots=True)
class DaemonView:
    """One live daemon of the registry: this one, those being replaced, and sari before 3 (without our HTTP server)."""

    version: str
    pid: int
    port: int
    start_ts: float
    draining: bool
    workspaces: Sequence[str]
    this: bool


class Facade(Protocol):
    """The daemon as seen by its HTTP server."""

    def daemon_info(self) -> Mapping[str, object]:
        """Return `{name, version, boot_id, pid, protocol, draining, host, port, http_port, start_ts}`. Never the token."""
        ...

    def daemons(self) -> Sequence[DaemonView]:
        """Return every live daemon in the registry, oldest first."""
        ...

    def workspaces(self) -> Sequence[WorkspaceView]:
        """Return the open workspaces."""
        ...

    def sessions(self) -> Sequence[SessionView]: ...

    def call_tool(
        self, root: Path, tool: str, arguments: Mapping[str, object], gone: Gone | None = None
    ) -> ToolResult:
        """Call a tool in an open workspace. Raises `UnknownWorkspace` (→ 404) if it is not open.

        When `gone` returns True, the call is cancelled and `ClientDisconnected` raised.
        """
        ...

    def handle_mcp(
        self,
        message: object,
        session_id: str | None,
        root: Path | None = None,
        notify: Notify | None = None,
        gone: Gone | None = None,
    ) -> Mapping[str, object] | None:
        """Answer one decoded JSON-RPC message; return None for a notification. Opens the workspace when a call needs
        it.

        `session_id` is the lease (None: a stateless request, leased only while it runs). `notify` receives progress.
        """
        ...

    def lease(self, session_id: str, client: str = "http") -> None:
        """Create or renew an HTTP session's lease. A session unknown here (because the daemon was replaced) is created
        again.
        """
        ...

    def end_session(self, session_id: str) -> None:
        """End a session that its client no longer needs (HTTP DELETE)."""
        ...


class HttpServerLike(Protocol):
    """The HTTP server as seen by the daemon."""

    def start(self) -> None:
        """Start serving in separate threads. Returns immediately."""
        ...

    def close(self, *, leaving: bool = False) -> None:
        """Stop accepting, finish running requests within a few seconds, and return when no thread is left.

        With `leaving` (the socket goes to a successor), connections already accepted are answered too.
        """
        ...
