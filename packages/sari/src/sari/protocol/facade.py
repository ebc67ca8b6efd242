"""What the daemon shows its HTTP side, and what it asks of it. Standard library only.

Every method of `Facade` blocks and is thread-safe: call it from a worker thread, never from an event loop. `HttpServer` is
`sari.web.server.HttpServer`; the listening socket is already bound, belongs to the daemon and may be shared with its
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
    """One client's session, which is a lease on the workspaces it used."""

    session_id: str
    client: str
    roots: Sequence[str]
    connected: bool
    leased: bool
    last_request_ts: float


Notify = Callable[[Mapping[str, object]], None]
# Whether whoever asked has hung up since.
Gone = Callable[[], bool]


class HungUp(Exception):
    """Nobody waits for the answer any more; the call was cancelled."""


@dataclass(frozen=True, slots=True)
class DaemonView:
    """One living daemon of the registry: this one, those being replaced, and predecessors' (no HTTP side of ours)."""

    version: str
    pid: int
    port: int
    start_ts: float
    draining: bool
    workspaces: Sequence[str]
    this: bool


class Facade(Protocol):
    """The daemon, as its HTTP side sees it."""

    def daemon_info(self) -> Mapping[str, object]:
        """`{name, version, boot_id, pid, protocol, draining, host, port, http_port, start_ts}`. Never the token."""
        ...

    def daemons(self) -> Sequence[DaemonView]:
        """Every daemon of the registry that lives, oldest first."""
        ...

    def workspaces(self) -> Sequence[WorkspaceView]:
        """The open ones."""
        ...

    def sessions(self) -> Sequence[SessionView]: ...

    def call_tool(
        self, root: Path, tool: str, arguments: Mapping[str, object], gone: Gone | None = None
    ) -> ToolResult:
        """Call a tool in a workspace that is open. Raises `UnknownWorkspace` (→ 404) for one that is not.

        Once `gone` says so the call is cancelled and `HungUp` raised.
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
        """Answer one decoded JSON-RPC message, or None for a notification. Opens the workspace when a call needs it.

        `session_id` is the lease (None: a stateless request, leased only while it runs). `notify` gets progress.
        """
        ...

    def lease(self, session_id: str, client: str = "http") -> None:
        """Take or renew an HTTP session's lease; one unknown here (the daemon was replaced) is created again."""
        ...

    def end_session(self, session_id: str) -> None:
        """The client is done with its session (HTTP DELETE)."""
        ...


class HttpServerLike(Protocol):
    """What the daemon does with its HTTP server."""

    def start(self) -> None:
        """Begin to serve, in threads of its own. Returns at once."""
        ...

    def close(self, *, leaving: bool = False) -> None:
        """Accept no more, finish what runs (bounded by a few seconds), return when no thread is left.

        `leaving` the socket to a successor, connections that were taken are answered, too.
        """
        ...
