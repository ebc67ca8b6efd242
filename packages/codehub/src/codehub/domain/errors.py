"""What can go wrong, by the reaction it asks for. Adapters translate their drivers' errors into these, in one place."""

from __future__ import annotations


class CodeHubError(Exception):
    """The root. The message says what happened and, where a person can do something, what to do."""


class Transient(CodeHubError):
    """May succeed when tried again; counts as an attempt."""


class BackendDown(Transient):
    """The backend itself does not answer. Never anybody's attempt: the circuit breaker's business."""


class OutOfSpace(Transient):
    """No room on one side of a copy. Never anybody's attempt: it is tried again until room was made."""


class Terminal(CodeHubError):
    """Trying again cannot help; the workspace goes to ERROR with this reason."""

    reason = "ActionFailed"


class ImagePullFailed(Terminal):
    reason = "ImagePullFailed"


class ArchiveCorrupted(Terminal):
    reason = "ArchiveCorrupted"


class DataLost(Terminal):
    reason = "DataLost"


class FenceLost(CodeHubError):
    """The term is over or the resource is another incarnation: nothing was changed, and nothing may be."""


class Deposed(FenceLost):
    """Another leads, or may: the term is over, and with it everything that was under way in it."""


class Invalid(CodeHubError):
    """The request itself is wrong (400)."""


class Unauthorized(CodeHubError):
    """Nobody is signed in, or not any more (401)."""


class Denied(CodeHubError):
    """Signed in, but not allowed (403)."""


class NotFound(CodeHubError):
    """There is no such thing, or none that may be known of (404)."""


class WorkspaceNotFound(NotFound):
    """There is no such workspace."""


class Conflict(CodeHubError):
    """Not from this state (409)."""


class LimitExceeded(CodeHubError):
    """One more would run than may (429)."""


class TooManyRequests(CodeHubError):
    """Locked out for a while (429 with Retry-After)."""

    def __init__(self, message: str, retry_after_s: int) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class Unavailable(CodeHubError):
    """A service that everything needs is away for the moment (503 with Retry-After)."""


class UpstreamUnavailable(CodeHubError):
    """What a workspace runs on does not answer (502)."""
