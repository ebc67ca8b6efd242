"""Sessions as leases: which client uses which workspace, and until when. Pure: time is an argument.

A session expires if its client sends no request during the lease time, because some clients abandon shims with stdin
open. The session's next request renews the lease.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field

# Of one session. Agents send a few at a time.
CALLS_AT_ONCE = 4
# Each is indexed and watched. The least recently used ones of more are closed as if nobody used them.
MOST_ROOTS = 32
# Each HTTP client that says `initialize` has one, for as long as its lease.
MOST_HTTP_SESSIONS = 1_000


@dataclass(slots=True)
class Session:
    """One client's session. `connections` is 0 for an HTTP session, which depends on its lease alone."""

    session_id: str
    client: str
    last_request: float
    http: bool = False
    connections: int = 0
    running: int = 0
    # Clients share the threads: one that sends many calls, or calls that hang, keeps no other waiting.
    turns: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(CALLS_AT_ONCE))
    roots: set[str] = field(default_factory=set)
    # The process that started the shim, if it says so: one client can have many sessions.
    process: int = 0

    # The roots in the order in which they were last used.
    _order: dict[str, None] = field(default_factory=dict)

    @property
    def owner(self) -> str:
        """A name for the client: its process, or over HTTP what it calls itself, or only this session."""
        if self.process:
            return f"process {self.process}"
        return f"http {self.client}" if self.http else f"session {self.session_id}"

    def use(self, root: str) -> None:
        """Keep a workspace open for this session."""
        self._order.pop(root, None)
        self._order[root] = None
        self.roots.add(root)
        while len(self._order) > MOST_ROOTS:
            oldest = next(iter(self._order))
            del self._order[oldest]
            self.roots.discard(oldest)

    def is_leased(self, now: float, lease_s: float) -> bool:
        """Whether the lease is still valid."""
        return self.running > 0 or now - self.last_request < lease_s


class Sessions:
    """All sessions of one daemon."""

    def __init__(self, lease_s: float) -> None:
        self._lease_s = lease_s
        self._by_id: dict[str, Session] = {}

    def __iter__(self) -> Iterator[Session]:
        return iter(list(self._by_id.values()))

    def __len__(self) -> int:
        return len(self._by_id)

    def take(self, session_id: str, client: str, now: float, *, http: bool = False) -> Session:
        """Return the session with this id, created if it is new."""
        session = self._by_id.get(session_id)
        if session is None:
            if http:
                self._drop_oldest_http()
            session = self._by_id[session_id] = Session(session_id, client, now, http)
        session.client = client or session.client
        return session

    def _drop_oldest_http(self) -> None:
        known = [session for session in self if session.http and not session.running]
        if len(known) >= MOST_HTTP_SESSIONS:
            self.end(min(known, key=lambda one: one.last_request).session_id)

    def connect(self, session: Session) -> None:
        """Add a connection to a session."""
        session.connections += 1
        self._by_id[session.session_id] = session

    def disconnect(self, session: Session) -> None:
        """Remove a connection from a session. Removing the last one ends the session."""
        session.connections -= 1
        if session.connections <= 0 and not session.http:
            self._by_id.pop(session.session_id, None)

    def end(self, session_id: str) -> None:
        """End a session."""
        self._by_id.pop(session_id, None)

    def expire(self, now: float) -> None:
        """Release the workspaces of sessions whose lease expired, and remove expired HTTP sessions."""
        for session in self:
            if not session.is_leased(now, self._lease_s):
                session.roots.clear()
                if session.http:
                    self.end(session.session_id)

    def is_leased(self, session: Session, now: float) -> bool:
        """Whether a session's lease is still valid."""
        return session.is_leased(now, self._lease_s)

    def count(self, root: str, now: float) -> int:
        """Return the number of sessions that use a workspace."""
        return sum(
            root in session.roots and session.is_leased(now, self._lease_s) for session in self._by_id.values()
        )

    def connected(self) -> int:
        """Return the number of sessions with a connection."""
        return sum(session.connections > 0 for session in self._by_id.values())
