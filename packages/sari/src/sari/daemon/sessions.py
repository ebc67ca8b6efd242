"""Sessions as leases: who counts as using which workspace, and until when. Pure: time comes in as an argument.

A session whose client asked nothing for the lease time no longer counts, since some clients abandon shims with stdin
open; its next request takes the lease again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field


@dataclass(slots=True)
class Session:
    """One client. `connections` is 0 for an HTTP session, which lives by its lease alone."""

    session_id: str
    client: str
    last_request: float
    http: bool = False
    connections: int = 0
    running: int = 0
    roots: set[str] = field(default_factory=set)

    def is_leased(self, now: float, lease_s: float) -> bool:
        """Whether it still counts."""
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
        """A session by its id, begun if it is new."""
        session = self._by_id.get(session_id)
        if session is None:
            session = self._by_id[session_id] = Session(session_id, client, now, http)
        session.client = client or session.client
        return session

    def connect(self, session: Session) -> None:
        """One more connection speaks for this session."""
        session.connections += 1
        self._by_id[session.session_id] = session

    def disconnect(self, session: Session) -> None:
        """One fewer; the last one takes the session with it."""
        session.connections -= 1
        if session.connections <= 0 and not session.http:
            self._by_id.pop(session.session_id, None)

    def end(self, session_id: str) -> None:
        """The client is done."""
        self._by_id.pop(session_id, None)

    def expire(self, now: float) -> None:
        """Let go of the workspaces of those whose lease ran out, and of HTTP sessions altogether."""
        for session in self:
            if not session.is_leased(now, self._lease_s):
                session.roots.clear()
                if session.http:
                    self.end(session.session_id)

    def is_leased(self, session: Session, now: float) -> bool:
        """Whether a session counts."""
        return session.is_leased(now, self._lease_s)

    def count(self, root: str, now: float) -> int:
        """How many use a workspace."""
        return sum(
            root in session.roots and session.is_leased(now, self._lease_s) for session in self._by_id.values()
        )

    def connected(self) -> int:
        """How many have a connection."""
        return sum(session.connections > 0 for session in self._by_id.values())
