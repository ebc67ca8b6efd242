"""The requests that wait for an answer: each is answered exactly once, by the daemon, the deadline or the client's
cancel.

A link is only compared here. Not thread-safe: the shim's lock guards it.
"""

from __future__ import annotations

from sari.protocol.jsonrpc import Message

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from sari.shim.link import Link

# A request that takes the daemon down with it every time is not sent for ever.
MOST_ATTEMPTS = 15


class Request:
    """One request of the client. `link` is the connection it was last sent on, None while it must be sent (again)."""

    __slots__ = ("attempts", "deadline", "link", "message", "settled")

    def __init__(self, message: Message, deadline: float) -> None:
        self.message = message
        self.deadline = deadline
        self.link: Link | None = None
        self.attempts = 0
        # Someone has taken it upon himself to answer; nobody else may.
        self.settled = False


class Requests:
    """All that wait, in the order they came."""

    def __init__(self) -> None:
        self._by_id: dict[object, Request] = {}

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[Request]:
        return iter(list(self._by_id.values()))

    def add(self, message: Message, deadline: float) -> Request | None:
        """Keep a request; None when its id is taken by one that still waits."""
        request_id = message["id"]
        if request_id in self._by_id:
            return None
        request = Request(message, deadline)
        self._by_id[request_id] = request
        return request

    def settle(self, request_id: object, link: object | None = None) -> Request | None:
        """Take it upon oneself to answer a request; None if it is not there, or another's. Then `forget` it."""
        request = self._by_id.get(request_id) if _is_key(request_id) else None
        if request is None or request.settled or (link is not None and request.link is not link):
            return None
        request.settled = True
        return request

    def forget(self, request: Request) -> None:
        """It is answered."""
        request_id = request.message["id"]
        if self._by_id.get(request_id) is request:
            del self._by_id[request_id]

    def unsent(self) -> list[Request]:
        """Those to be sent, or sent again, in order."""
        return [request for request in self._by_id.values() if request.link is None and not request.settled]

    def on(self, link: object) -> list[Request]:
        """Those that wait for an answer on this link."""
        return [request for request in self._by_id.values() if request.link is link and not request.settled]

    def expired(self, now: float) -> list[Request]:
        """Those whose deadline has passed."""
        return [request for request in self._by_id.values() if request.deadline <= now and not request.settled]

    def next_deadline(self) -> float | None:
        """When the first of them expires."""
        return min((request.deadline for request in self._by_id.values() if not request.settled), default=None)


def _is_key(value: object) -> bool:
    return isinstance(value, str | int | float)
