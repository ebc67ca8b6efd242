"""The pending requests. Each is answered exactly once: by the daemon, the deadline or the client's cancellation.

Links are only compared here. Not thread-safe: the shim's lock guards it.
"""

from __future__ import annotations

from sari.protocol.jsonrpc import Message

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from sari.shim.link import Link

# A request that crashes the daemon every time must not be sent forever.
MOST_ATTEMPTS = 15


class Request:
    """One request of the client. `link` is the connection it was last sent on; None while it must be sent (again)."""

    __slots__ = ("attempts", "deadline", "link", "message", "settled")

    def __init__(self, message: Message, deadline: float) -> None:
        self.message = message
        self.deadline = deadline
        self.link: Link | None = None
        self.attempts = 0
        # Set by the thread that answers the request; no other may answer it.
        self.settled = False


class Requests:
    """All pending requests, in order of arrival."""

    def __init__(self) -> None:
        self._by_id: dict[object, Request] = {}

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[Request]:
        return iter(list(self._by_id.values()))

    def add(self, message: Message, deadline: float) -> Request | None:
        """Add a request. Returns None if a pending request already uses its id."""
        request_id = message["id"]
        if request_id in self._by_id:
            return None
        request = Request(message, deadline)
        self._by_id[request_id] = request
        return request

    def settle(self, request_id: object, link: object | None = None) -> Request | None:
        """Claim a request in order to answer it, then `forget` it. Returns None if it is unknown or already claimed."""
        request = self._by_id.get(request_id) if _is_key(request_id) else None
        if request is None or request.settled or (link is not None and request.link is not link):
            return None
        request.settled = True
        return request

    def forget(self, request: Request) -> None:
        """Remove a request that has been answered."""
        request_id = request.message["id"]
        if self._by_id.get(request_id) is request:
            del self._by_id[request_id]

    def unsent(self) -> list[Request]:
        """Return the requests to send, or send again, in order."""
        return [request for request in self._by_id.values() if request.link is None and not request.settled]

    def on(self, link: object) -> list[Request]:
        """Return the requests that wait for an answer on this link."""
        return [request for request in self._by_id.values() if request.link is link and not request.settled]

    def expired(self, now: float) -> list[Request]:
        """Return the requests whose deadline has passed."""
        return [request for request in self._by_id.values() if request.deadline <= now and not request.settled]

    def next_deadline(self) -> float | None:
        """Return the earliest deadline."""
        return min((request.deadline for request in self._by_id.values() if not request.settled), default=None)


def _is_key(value: object) -> bool:
    return isinstance(value, str | int | float)
